"""What Lethe reads and writes, as data sources of Apache Spark. `register(session)` makes them known."""

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from lethe_spark.archive import ArchiveSource
from lethe_spark.certificates import CertificateSource
from lethe_spark.changes import ChangesMissing, ChangesSource
from lethe_spark.je import JeSource
from lethe_spark.ledger import LedgerSource
from lethe_spark.options import OptionInvalid
from lethe_spark.slony_log import SlonyLogSource

__version__: Final = "0.1.0"
__all__ = [
    "SOURCES",
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

SOURCES: Final[tuple[type[DataSource], ...]] = (
    ArchiveSource,
    CertificateSource,
    ChangesSource,
    JeSource,
    LedgerSource,
    SlonyLogSource,
)


def register(session: SparkSession) -> None:
    """Make the sources known to a session, under their names."""
    for source in SOURCES:
        session.dataSource.register(source)
