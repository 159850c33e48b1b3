"""What is read of a cluster's catalog, as values."""

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Node:
    """A row of sl_node."""

    id: int
    is_active: bool
    has_failed: bool
    comment: str | None


@dataclass(frozen=True, slots=True)
class Path:
    """A row of sl_path, its connection string as a digest: it may hold a password."""

    server: int
    client: int
    digest: str


@dataclass(frozen=True, slots=True)
class Address:
    """Where a path says that a node is; None: the path leaves it to libpq."""

    host: str | None
    port: int | None
    database: str | None


@dataclass(frozen=True, slots=True)
class ServerSelf:
    """What a node's server says of itself.

    Args:
        identity: its system identifier, and the database.
        started_at: of the server; two that run beside each other with one system identifier differ in it.
        is_standby: it follows another one, and takes no writes.
    """

    identity: str
    started_at: datetime
    is_standby: bool


@dataclass(frozen=True, slots=True)
class Catalog:
    """A cluster as one node knows it.

    Args:
        version: of the cluster's functions; None: they are not installed.
        local_node: its own id.
        functions: names of the cluster's functions that are installed and may be executed, in lower case.
    """

    cluster: str
    schema: str
    version: str | None
    local_node: int
    nodes: tuple[Node, ...]
    paths: tuple[Path, ...]
    functions: frozenset[str]

    def node(self, node_id: int) -> Node | None:
        """A node by its id."""
        return next((node for node in self.nodes if node.id == node_id), None)

    @property
    def active(self) -> tuple[int, ...]:
        """The nodes that take part: active and not failed, in order."""
        return tuple(sorted(node.id for node in self.nodes if node.is_active and not node.has_failed))


@dataclass(frozen=True, slots=True)
class Event:
    """A row of sl_event."""

    origin: int
    seqno: int
    timestamp: datetime
    snapshot: str | None
    type: str
    data: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """How far a receiver has confirmed an origin's events, as this node knows it.

    Args:
        seqno: None: it never confirmed anything of this origin (no row at all).
        timestamp: of the newest confirmation.
        last_seqno: the origin's newest event here; None: it has none.
        lag_events: events of the origin here above `seqno`; all of them where there is no confirmation.
        lag: age of the newest confirmed event as sl_status tells it, nothing where none is unconfirmed;
            None: infinite, never confirmed.
    """

    origin: int
    receiver: int
    seqno: int | None
    timestamp: datetime | None
    last_seqno: int | None
    lag_events: int
    lag: timedelta | None
