"""What a feed reads, as values."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from spark.events.feed.snapshot import TxidSnapshot

ChangeKind = Literal[
    "INSERT",
    "UPDATE",
    "DELETE",
    "TRUNCATE",
    "DDL",
    "DDL_END",
    "SEQUENCE",
    "EVENT",
    "SYNC",
    "UNKNOWN",
    "COPY",
    "END",
]
ROW_KINDS: Final[dict[str, ChangeKind]] = {
    "I": "INSERT",
    "U": "UPDATE",
    "D": "DELETE",
    "T": "TRUNCATE",
    "S": "DDL",
    "s": "DDL_END",
}
"""By log_cmdtype."""


class Change(NamedTuple):
    """One record of a feed; the records of a unit end with its SYNC.

    Args:
        seqno: of the SYNC that the record belongs to.
        kind: UNKNOWN is a log_cmdtype that no version known here writes.
        key, values: by column, as PostgreSQL prints them; None is NULL. Of an UPDATE only changed columns.
        detail: of DDL its statement, of SEQUENCE its value, of EVENT the event, of SYNC its snapshot.
    """

    seqno: int
    kind: ChangeKind
    actionseq: int | None = None
    txid: int | None = None
    set_id: int | None = None
    table_id: int | None = None
    schema: str | None = None
    table: str | None = None
    key: dict[str, str | None] | None = None
    values: dict[str, str | None] | None = None
    detail: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """A SYNC up to which everything was read; the next unit begins behind it."""

    origin: int
    seqno: int
    snapshot: TxidSnapshot


@dataclass(frozen=True, slots=True)
class Sync:
    """A SYNC event as the feed needs it."""

    seqno: int
    at: datetime
    text: str
    snapshot: TxidSnapshot


@dataclass(frozen=True, slots=True)
class Tables:
    """Which set each replicated table and sequence is in, at the moment of reading."""

    tables: dict[int, int | None]
    sequences: dict[int, tuple[int | None, str, str]]

    def others(self, sets: frozenset[int]) -> list[int]:
        """Tables that are known to be in none of some sets."""
        return [table for table, set_id in self.tables.items() if set_id is not None and set_id not in sets]
