"""The runtime tables of SymmetricDS that a purge reads and writes, in their 2.x and 3.x layouts.

Source: facts/symmetricds-purge, sections 1 and 2.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Version = Literal["2.x", "3.x"]
KindName = Literal[
    "OUTGOING",
    "INCOMING",
    "DATA_GAP",
    "EXTRACT_REQUEST",
    "REGISTRATION_REQUEST",
    "INCOMING_ERROR",
    "STATISTICS",
    "TRIGGER_HIST",
    "STRANDED",
    "CHANNELS",
]
TimeEncoding = Literal["timestamp", "timestamptz", "text", "epoch_ms"]

# Names without the prefix, in the order in which a purge removes their rows.
DATA = "data"
DATA_EVENT = "data_event"
OUTGOING_BATCH = "outgoing_batch"
INCOMING_BATCH = "incoming_batch"
DATA_GAP = "data_gap"
NODE = "node"
LOCK = "lock"
CONTEXT = "context"
KNOWN_TABLES = (
    DATA,
    DATA_EVENT,
    OUTGOING_BATCH,
    INCOMING_BATCH,
    DATA_GAP,
    NODE,
    LOCK,
    CONTEXT,
    "node_identity",
    "parameter",
    "sequence",
)
PURGED_TABLES: dict[KindName, tuple[str, ...]] = {
    "OUTGOING": (DATA, DATA_EVENT, OUTGOING_BATCH),
    "INCOMING": (INCOMING_BATCH,),
    "DATA_GAP": (DATA_GAP,),
    "EXTRACT_REQUEST": ("table_reload_status", "table_reload_request", "extract_request"),
    "REGISTRATION_REQUEST": ("registration_request",),
    "INCOMING_ERROR": ("incoming_error",),
    "STATISTICS": ("node_host_channel_stats", "node_host_stats", "node_host_job_stats"),
    "TRIGGER_HIST": ("trigger_hist",),
    "STRANDED": (DATA_EVENT, DATA),
    "CHANNELS": (DATA,),
}

# Without these columns a purge cannot be computed at all. Other kinds take the tables that are there.
REQUIRED_COLUMNS: dict[KindName, dict[str, tuple[str, ...]]] = {
    "OUTGOING": {
        DATA: ("data_id", "create_time"),
        DATA_EVENT: ("data_id", "batch_id"),
        OUTGOING_BATCH: ("batch_id", "node_id", "status", "create_time"),
        NODE: ("node_id", "sync_enabled"),
    },
    "INCOMING": {INCOMING_BATCH: ("batch_id", "node_id", "status", "create_time")},
    "DATA_GAP": {DATA_GAP: ("start_id", "end_id")},
}
# What the program calls its lock of each purge; 3.x has no purge of gaps any more.
LOCK_ACTIONS: dict[KindName, str] = {
    "OUTGOING": "PURGE_OUTGOING",
    "INCOMING": "PURGE_INCOMING",
    "DATA_GAP": "PURGE_DATA_GAPS",
    "EXTRACT_REQUEST": "PURGE_OUTGOING",
    "REGISTRATION_REQUEST": "PURGE_INCOMING",
    "INCOMING_ERROR": "PURGE_INCOMING",
    "STATISTICS": "PURGE_STATISTICS",
    "TRIGGER_HIST": "PURGE_INCOMING",
    "STRANDED": "PURGE_OUTGOING",
    "CHANNELS": "PURGE_OUTGOING",
}

OK = "OK"
DELIVERED_STATUSES = (OK, "IG")
# The status of a gap until 3.8 whose rows may still come; SK and OK (FL) are closed.
OPEN_GAP = "GP"
KNOWN_STATUSES = ("OK", "ER", "RQ", "NE", "QY", "SE", "LD", "RT", "IG", "RS", "XX", "LS")
# Under this name `context` keeps the greatest data id up to which the program (3.10 and later) has purged.
PURGED_DATA_ID = "purge.last.data.id"
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
        columns: of every one of them, in the order of their declaration.
        common_batches: one batch id may belong to several nodes (the key is batch and node).
        data_gap_has_status: until 3.8; later `is_expired`.
    """

    version: Version
    tables: frozenset[str]
    columns: tuple[tuple[str, tuple[str, ...]], ...]
    common_batches: bool
    data_gap_has_status: bool

    def columns_of(self, table: str) -> tuple[str, ...]:
        """The columns of a table; none where it is not there."""
        return dict(self.columns).get(table, ())

    @property
    def gap_time(self) -> Literal["last_update_time", "create_time"] | None:
        """The time that the purge of gaps compares: by what the columns tell, for 3.0 to 3.8 still had the
        status of 2.x; None: neither form is there.
        """
        columns = self.columns_of(DATA_GAP)
        if {"is_expired", "create_time"} <= set(columns):
            return "create_time"
        return "last_update_time" if {"status", "last_update_time"} <= set(columns) else None


def detect_version(*, tables: Iterable[str], data_gap_columns: Iterable[str]) -> Version:
    """Tell the layout by what only 3.x has; ids and keys overlap between late 2.x and early 3.x."""
    if {"context", "sequence"}.intersection(tables) or "is_expired" in data_gap_columns:
        return "3.x"
    return "2.x"
