"""What hands are asked of the records in a log, and what JE itself has discarded; and what they answer."""

from dataclasses import dataclass

from spark.erase.calls.calls import Refusal
from spark.erase.calls.request import LogExtinction
from spark.erase.reading.log_tail import LogPosition

Packed = bytes


@dataclass(frozen=True, slots=True)
class CountCall:
    """Name the databases of an environment, and count what an extinction covers.

    Attributes:
        extinction: its record (`formats.extinction`); None: only the names are wanted.
        keys: what names the covered records is wanted too.
        discards: what JE itself has discarded is wanted, up to the end of the log.
    """

    directory: str
    extinction: bytes | None = None
    discards: bool = False
    keys: bool = False


@dataclass(frozen=True, slots=True)
class CountAnswer:
    """Databases of the application, and how many live records are covered; bytes of keys and values.

    Attributes:
        keys: what names the covered records: 64-bit hashes of database and key, ascending.
        read_to: where `discards` were read up to; None: one in the log is not decided yet.
    """

    databases: tuple[str, ...] = ()
    records: int = 0
    bytes: int = 0
    log_extinctions: tuple[LogExtinction, ...] = ()
    refusal: Refusal | None = None
    read_to: LogPosition | None = None
    keys: Packed = b""
