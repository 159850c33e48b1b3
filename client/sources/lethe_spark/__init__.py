"""What Lethe reads and writes, as data sources of Apache Spark. `register(session)` makes them known.

A source is imported when it is named: each process of Spark that plans or reads one would pay for all others.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lethe_spark.archive import ArchiveSource
    from lethe_spark.certificates import CertificateSource
    from lethe_spark.changes import ChangesMissing, ChangesSource
    from lethe_spark.je import JeSource
    from lethe_spark.ledger import LedgerSource
    from lethe_spark.options import OptionInvalid
    from lethe_spark.slony_log import SlonyLogSource

__version__: Final = "0.1.0"
__all__ = [
    "ArchiveSource",
    "CertificateSource",
    "ChangesMissing",
    "ChangesSource",
    "JeSource",
    "LedgerSource",
    "OptionInvalid",
    "SlonyLogSource",
    "register",
]

SOURCES: Final = {
    "ArchiveSource": "archive",
    "CertificateSource": "certificates",
    "ChangesSource": "changes",
    "JeSource": "je",
    "LedgerSource": "ledger",
    "SlonyLogSource": "slony_log",
}
"""The classes, and the module of each."""
_PLACES: Final = SOURCES | {"ChangesMissing": "changes", "OptionInvalid": "options"}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{place}"), name)


def register(session: "SparkSession") -> None:
    """Make the sources known to a session, under their names."""
    for name in SOURCES:
        session.dataSource.register(__getattr__(name))
