"""What a node of a Slony-I cluster knows: events, confirmations, its log tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lethe_client.literals import ConfirmationState
from lethe_client.results import Raw, Result


@dataclass(frozen=True, kw_only=True)
class Event(Result):
    """An event; `confirmed_by` and what follows are there only where one event was asked for."""

    origin: int
    seqno: int
    type: str = ""
    created_at: datetime | None = None
    snapshot: str | None = None
    data: tuple[Any, ...] = ()
    confirmed_by: tuple[Raw, ...] = ()
    outstanding: tuple[int, ...] = ()
    is_confirmed_by_all: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Confirmation(Result):
    """How far a receiver is; `state` is NEVER_CONFIRMED, BEHIND or CURRENT, `lag` None is infinite."""

    origin: int
    receiver: int
    receiver_is_active: bool = True
    state: ConfirmationState | None = None
    confirmed_seqno: int | None = None
    confirmed_at: datetime | None = None
    last_seqno: int | None = None
    lag_events: int = 0
    lag: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class ConfirmationMatrix(Result):
    """Every pair of origin and receiver, as one node knows them."""

    local_node: int
    as_of: datetime | None = None
    items: tuple[Confirmation, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ConfirmOutcome(Result):
    """What became of a confirmation."""

    origin: int
    receiver: int
    seqno: int
    changed: bool
    confirmed_seqno: int | None = None
    confirmed_before: int | None = None
    is_forced: bool = False


@dataclass(frozen=True, kw_only=True)
class HeldBack(Result):
    """A node that holds a command of slonik back, and what to do."""

    node: int
    why: str
    detail: str = ""
    advice: str = ""


@dataclass(frozen=True, kw_only=True)
class Precondition(Result):
    """Whether a command of slonik may be submitted; `held_by` says who holds it back, and what to do.

    `awaited` is up to where it waits, for the next request of the same wait; `problem` is there where the
    service could not look this time.
    """

    met: bool
    command: str = ""
    as_program: bool = False
    missing: tuple[Raw, ...] = ()
    not_evaluated: tuple[Raw, ...] = ()
    awaited: tuple[Raw, ...] = ()
    held_by: tuple[HeldBack, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, kw_only=True)
class LogTable(Result):
    """`role` is ACTIVE, the one that is written, or OTHER."""

    name: str
    role: str = ""
    rows_estimate: int | None = None
    bytes: int | None = None
    is_empty: bool | None = None


@dataclass(frozen=True, kw_only=True)
class LogBlocker(Result):
    """A session in the way of emptying a log table; `pid` is None for a prepared transaction."""

    pid: int | None = None
    application: str = ""
    user: str = ""
    state: str | None = None
    transaction_age: timedelta | None = None
    backend_xid: int | None = None
    backend_xmin: int | None = None
    has_lock: bool = False
    is_older: bool = False


@dataclass(frozen=True, kw_only=True)
class LogStatus(Result):
    """The two log tables of a node: which one is written, and what holds the other one back.

    `origins` are those with rows in the other table; `needs_healing`: it counts as clean, and has rows.
    """

    status: int | None = None
    active: str = ""
    other: str = ""
    is_switching: bool = False
    needs_healing: bool = False
    started_at: datetime | None = None
    tables: tuple[LogTable, ...] = ()
    origins: tuple[Raw, ...] = ()
    blockers: tuple[LogBlocker, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HealthFinding(Result):
    """One thing that is wrong; `measured` and `limit` are in `unit`, SECONDS or ROWS, or are not there."""

    code: str
    severity: str
    node: int | None = None
    seen_by: tuple[str, ...] = ()
    detail: str = ""
    advice: str = ""
    measured: float | None = None
    limit: float | None = None
    unit: str | None = None


@dataclass(frozen=True, kw_only=True)
class NodeHealth(Result):
    """A node as it was looked at; `as_of` None: it could not be asked."""

    store: str
    status: str
    node: int | None = None
    as_of: datetime | None = None
    lag: timedelta | None = None
    sync_age: timedelta | None = None
    transaction_age: timedelta | None = None
    table_rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SlonyHealth(Result):
    """A node or a whole cluster; `status` is OK, WARNING, CRITICAL or UNKNOWN."""

    status: str
    cluster: str = ""
    nodes: tuple[NodeHealth, ...] = ()
    findings: tuple[HealthFinding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CleanupPlan(Result):
    """What a cleanup would remove; name `plan_id` in a cleanup to run exactly this."""

    plan_id: str
    store: str = ""
    via: str = ""
    rule: str = ""
    confirmed_before: datetime | None = None
    rows: int = 0
    rows_to_remove: int = 0
    tables: Mapping[str, int] = field(default_factory=dict)
    origins: tuple[Raw, ...] = ()
    log_switch: Raw = field(default_factory=dict)
    hazards: tuple[Raw, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[Any, ...] = ()
    expires_at: datetime | None = None
