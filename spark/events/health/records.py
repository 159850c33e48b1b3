"""What is read of a node's health, the limits it is held against, and what comes of it, as values."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal

from spark.events.cleaning.records import LogStatusRead
from spark.events.records import Catalog

Unit = Literal["SECONDS", "ROWS"]


class Severity(StrEnum):
    """How bad it is, as plugins of Nagios say it."""

    OK = "OK"
    WARNING = "WARNING"
    CRITICAL = "CRITICAL"
    UNKNOWN = "UNKNOWN"


_ORDER: Final = (Severity.OK, Severity.UNKNOWN, Severity.WARNING, Severity.CRITICAL)


def worst(severities: list[Severity]) -> Severity:
    """The one that counts: CRITICAL, then WARNING, then UNKNOWN; OK where there is none."""
    return max(severities, key=_ORDER.index, default=Severity.OK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From when on something is told; a limit of nothing at all is none, and is not held against anything.

    The defaults are those of Slony-I's own tools where they have one (test_slony_state, generate_syncs,
    check-slony-cluster).

    Args:
        lag_warning, lag_critical: age of the oldest event that a receiver has not confirmed.
        events: age of an origin's newest event at another node.
        confirmations: age of a pair's newest confirmation.
        syncs: age of the node's own newest SYNC.
        log_rows: of sl_log_1, sl_log_2 and sl_seqlog, each.
        components: age of what a thread of slon said last.
        cleanup_interval: of slon: its cleanup thread speaks only so often.
        ddl: how long a DDL script may be on its way.
        subscriptions: how long a subscription may be asked for and not active.
        log_switch: how long a switch of the log tables may be under way.
    """

    lag_warning: timedelta = timedelta(minutes=10)
    lag_critical: timedelta = timedelta(minutes=30)
    events: timedelta = timedelta(minutes=30)
    confirmations: timedelta = timedelta(minutes=30)
    syncs: timedelta = timedelta(minutes=10)
    log_rows: int = 200_000
    transactions: timedelta = timedelta(minutes=90)
    components: timedelta = timedelta(minutes=5)
    cleanup_interval: timedelta = timedelta(minutes=10)
    ddl: timedelta = timedelta(minutes=5)
    subscriptions: timedelta = timedelta(hours=1)
    log_switch: timedelta = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class OriginEvents:
    """The newest event of an origin at the node, and its newest SYNC; None: it has none here."""

    origin: int
    newest_seqno: int | None
    newest_at: datetime | None
    sync_at: datetime | None


@dataclass(frozen=True, slots=True)
class Pair:
    """How far a receiver has confirmed an origin's events.

    Args:
        seqno: None: it never confirmed anything of this origin.
        confirmed_at: of the newest confirmation.
        waiting_since: when the oldest event was made that it has not confirmed; None: it has all.
    """

    origin: int
    receiver: int
    seqno: int | None
    confirmed_at: datetime | None
    waiting_since: datetime | None


@dataclass(frozen=True, slots=True)
class Listen:
    """A row of sl_listen."""

    origin: int
    provider: int
    receiver: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """A row of sl_subscribe, and the origin of its set.

    Args:
        asked_at: of the newest event that asked for it, where it is not active; None: no such event is left.
    """

    set_id: int
    origin: int
    provider: int
    receiver: int
    is_active: bool = True
    asked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Component:
    """What a thread of the node's slon said last, while its session is there.

    Args:
        node: whose events it is busy with; 0: of none.
    """

    actor: str
    node: int
    activity: str | None
    since: datetime


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open transaction; `pid` None: a prepared one."""

    pid: int | None
    application: str
    user: str
    database: str
    state: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Leftover:
    """Rows of a node that is no longer in sl_node; `newest_at` of the newest of them."""

    node: int
    table: str
    newest_at: datetime | None


@dataclass(frozen=True, slots=True)
class PendingDdl:
    """Statements of EXECUTE SCRIPT of this node that a subscriber has not confirmed.

    Args:
        since: when the first SYNC was made that carries one; None: none does yet.
    """

    receiver: int
    statements: int
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReading:
    """A node at one moment. None: the role may not read it; `unreadable` names the tables.

    Args:
        now: by the node's own clock.
        listens, subscriptions, set_origins: how events are to go.
        has_own_slon: whether the node's own slon is connected.
        transactions: the oldest ones, of this database or with a transaction id of their own.
        sees_all_sessions: whether others' transactions are shown to the role.
        table_rows: estimates by table; None: the server never counted.
    """

    catalog: Catalog
    now: datetime
    origins: tuple[OriginEvents, ...]
    pairs: tuple[Pair, ...]
    leftovers: tuple[Leftover, ...]
    listens: tuple[Listen, ...] | None
    subscriptions: tuple[Subscription, ...] | None
    set_origins: frozenset[int] | None
    has_own_slon: bool | None
    components: tuple[Component, ...] | None
    transactions: tuple[Transaction, ...]
    sees_all_sessions: bool
    pending_ddl: tuple[PendingDdl, ...] | None
    log_status: LogStatusRead
    table_rows: dict[str, int | None]
    unreadable: tuple[str, ...]

    @property
    def node(self) -> int:
        """Its own id."""
        return self.catalog.local_node


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFinding:
    """One thing that is wrong.

    Args:
        node: that it is about; None: not told.
        measured, limit: in `unit`; None: it is not a matter of more or less.
        advice: what to do next.
    """

    code: str
    severity: Severity
    node: int | None
    detail: str
    advice: str
    measured: float | None = None
    limit: float | None = None
    unit: Unit | None = None
