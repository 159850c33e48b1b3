"""The runtime tables of SymmetricDS that a purge reads and writes, in their 2.x and 3.x layouts.

Source: facts/symmetricds-purge, sections 1 and 2.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Version = Literal["2.x", "3.x"]
TimeEncoding = Literal["timestamp", "timestamptz", "text", "epoch_ms"]

# Names without the prefix, in the order in which a purge removes their rows.
DATA = "data"
DATA_EVENT = "data_event"
OUTGOING_BATCH = "outgoing_batch"
NODE = "node"
PURGED_TABLES = (DATA, DATA_EVENT, OUTGOING_BATCH)
REQUIRED_TABLES = (*PURGED_TABLES, NODE)
OPTIONAL_TABLES = (
    "context",
    "data_gap",
    "incoming_batch",
    "lock",
    "parameter",
    "sequence",
)

# Without these columns a purge cannot be computed at all.
REQUIRED_COLUMNS = {
    DATA: ("data_id", "create_time"),
    DATA_EVENT: ("data_id", "batch_id"),
    OUTGOING_BATCH: ("batch_id", "node_id", "status", "create_time"),
    NODE: ("node_id", "sync_enabled"),
}

DELIVERED_STATUSES = ("OK", "IG")
KNOWN_STATUSES = ("OK", "ER", "RQ", "NE", "QY", "SE", "LD", "RT", "IG", "RS", "XX", "LS")
# The node of batches whose rows were routed to nobody.
UNROUTED_NODE = "-1"


@dataclass(frozen=True, slots=True)
class TableNames:
    """Quoted, qualified names, ready to stand in a statement."""

    data: str
    data_event: str
    outgoing_batch: str
    node: str


@dataclass(frozen=True, slots=True)
class Layout:
    """What is really there.

    Attributes:
        version: 3.x when `data_gap` knows `is_expired` or one of `context` and `sequence` exists.
        tables: names without prefix.
        columns: of the required tables, in the order of their declaration.
        common_batches: one batch id may belong to several nodes (the key is batch and node).
        data_gap_has_status: 2.x; later `is_expired`.
    """

    version: Version
    tables: frozenset[str]
    columns: tuple[tuple[str, tuple[str, ...]], ...]
    common_batches: bool
    data_gap_has_status: bool

    def columns_of(self, table: str) -> tuple[str, ...]:
        """The columns of one of the required tables."""
        return dict(self.columns)[table]


def detect_version(*, tables: Iterable[str], data_gap_columns: Iterable[str]) -> Version:
    """Tell the layout by what only 3.x has; ids and keys overlap between late 2.x and early 3.x."""
    if {"context", "sequence"}.intersection(tables) or "is_expired" in data_gap_columns:
        return "3.x"
    return "2.x"
