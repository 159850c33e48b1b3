"""What a cleanup of a cluster's catalog would do and did, as values; `dataclasses.asdict` makes JSON of them.

Words: an origin's `floor` is the least of what its receivers have confirmed before the instant, its `bound`
the newest SYNC up to the floor. Events below the bound go, the bound stays.
Source: slony-events-confirmations, 4.1.3; facts/slony, section 2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal

from spark.formats.slony import LogStatus

Rule = Literal["PROGRAM", "MANUAL"]
"""MANUAL: of the events only SYNCs, as the documentation has it; PROGRAM: all, as the program does it."""
Step = Literal["CONFIRM", "EVENT", "SEQLOG", "LOG_SCRIPT", "NODELOCK"]
STEPS: Final[tuple[Step, ...]] = ("CONFIRM", "EVENT", "SEQLOG", "LOG_SCRIPT", "NODELOCK")
TABLE_OF: Final[dict[Step, str]] = {
    "CONFIRM": "sl_confirm",
    "EVENT": "sl_event",
    "SEQLOG": "sl_seqlog",
    "LOG_SCRIPT": "sl_log_script",
    "NODELOCK": "sl_nodelock",
}

HoldReason = Literal["NEVER_CONFIRMED", "YOUNG_CONFIRMATION", "BEHIND", "NO_SYNC"]
"""NEVER_CONFIRMED: an active receiver has no row at all, or nobody has. YOUNG_CONFIRMATION: it has confirmed
further, but not before the instant. BEHIND: it has not confirmed further. NO_SYNC: the origin has none."""
Undrained = Literal["NOT_DRAINED", "NOT_CONFIRMED", "NO_SYNC"]
"""NOT_DRAINED: rows that the origin's oldest SYNC does not cover. NOT_CONFIRMED: an active receiver has not
confirmed that SYNC. NO_SYNC: the origin has no SYNC, so nobody knows what has been replicated."""
SwitchStep = Literal["FINISH", "BLOCKED", "START", "HEAL"]
HazardKind = Literal[
    "NEVER_CONFIRMED",
    "LAST_SYNC",
    "LOG_WITHOUT_SYNC",
    "LOG_NOT_CONFIRMED",
    "LOG_STILL_WRITTEN",
    "FOLLOWING_NOT_CONFIRMED",
    "CLEAN_LOG_HAS_ROWS",
]


@dataclass(frozen=True, slots=True)
class Hold:
    """What keeps an origin's events above its bound.

    Args:
        receiver: the one that is least far; None: not a receiver's doing.
        seqno: how far it counts as having confirmed; None: not at all.
    """

    why: HoldReason
    receiver: int | None
    seqno: int | None


@dataclass(frozen=True, slots=True)
class PairPlan:
    """The confirmations of one origin by one receiver.

    Args:
        keep: rows below it go; None: one of the two nodes is gone, so all rows go.
        newest: the greatest confirmed seqno, of any age.
        aged: the greatest that was confirmed before the instant; None: all are younger.
    """

    origin: int
    receiver: int
    rows: int
    rows_to_remove: int
    keep: int | None
    newest: int
    aged: int | None


@dataclass(frozen=True, slots=True)
class OriginPlan:
    """The events of one origin.

    Args:
        rows: events here.
        floor: see above; None: nobody has confirmed anything.
        bound: events below it go (MANUAL: SYNCs below it); None: none goes.
        oldest_sync: that is left afterwards; None: there is none.
        held: why no more goes; None: everything up to the newest SYNC goes.
        seqlog_rows, log_script_rows: that go with the events.
    """

    origin: int
    rows: int
    rows_to_remove: int
    syncs_to_remove: int
    floor: int | None
    bound: int | None
    first_seqno: int
    last_seqno: int
    oldest_sync: int | None
    held: Hold | None
    seqlog_rows: int
    log_script_rows: int


@dataclass(frozen=True, slots=True)
class Reviewed:
    """What a reviewed plan would remove, at most.

    Args:
        events: by origin, its bound; an origin that is not there keeps all its events.
        confirmations: by (origin, receiver) the seqno below which they go.
        nodelock_rows: of backends that have ended; where there are more by now they stay.
    """

    events: Mapping[int, int]
    confirmations: Mapping[tuple[int, int], int]
    nodelock_rows: int = 0


def bounds_of(origins: Iterable[OriginPlan]) -> dict[int, int]:
    """The bound of every origin that has one."""
    return {item.origin: item.bound for item in origins if item.bound is not None}


@dataclass(frozen=True, slots=True)
class LogOrigin:
    """An origin that has rows in the log table that is to be emptied.

    Args:
        oldest_sync, xmin: the oldest SYNC left, and the least transaction that it may not have seen.
        undrained_txid: the first transaction in the table that is not below `xmin`.
        reason: why the table may not be emptied for it; None: it may.
        receiver: NOT_CONFIRMED: by whom.
    """

    origin: int
    oldest_sync: int | None
    xmin: int | None
    undrained_txid: int | None
    reason: Undrained | None
    receiver: int | None = None

    @property
    def is_drained(self) -> bool:
        """Whether the table may be emptied as far as this origin goes."""
        return self.reason is None


@dataclass(frozen=True, slots=True)
class SwitchForecast:
    """What the step of the log switch at the end of a cleanup would do, were nobody in its way.

    Args:
        table: the log table that is to be emptied (FINISH, BLOCKED), written next (START) or was left with
            rows (HEAL).
        origins: that have rows in it, with FINISH and BLOCKED.
    """

    status: LogStatus
    step: SwitchStep
    table: str
    origins: tuple[LogOrigin, ...] = ()


@dataclass(frozen=True, slots=True)
class Hazard:
    """Where the program's own cleanup would lose, or leave unread, what not everybody has confirmed.

    Args:
        origin, receiver: None: the kind has none.
        rows: that would go: events (NEVER_CONFIRMED, LAST_SYNC), of sl_seqlog and sl_log_script
            (FOLLOWING_NOT_CONFIRMED); None: not counted.
        detail: a sentence.
    """

    kind: HazardKind
    origin: int | None
    receiver: int | None
    rows: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """A whole cleanup, under one view of the catalog.

    Args:
        confirmed_before: the instant; confirmations not older than it do not count.
        nodelock_rows: of backends that have ended.
        is_counted: False: of events and confirmations at most so many would go, and nobody has counted; the
            events that stay are exact (`rows` less `rows_to_remove` of an origin).
    """

    confirmed_before: datetime
    rule: Rule
    origins: tuple[OriginPlan, ...]
    pairs: tuple[PairPlan, ...]
    nodelock_rows: int
    log_switch: SwitchForecast
    hazards: tuple[Hazard, ...] = ()
    is_counted: bool = True

    def origin(self, origin: int) -> OriginPlan | None:
        """The plan of an origin's events."""
        return next((item for item in self.origins if item.origin == origin), None)

    @property
    def rows(self) -> int:
        """Events in the catalog."""
        return sum(item.rows for item in self.origins)

    @property
    def to_remove(self) -> dict[Step, int]:
        """Rows that would go, by step."""
        return {
            "CONFIRM": sum(item.rows_to_remove for item in self.pairs),
            "EVENT": sum(item.rows_to_remove for item in self.origins),
            "SEQLOG": sum(item.seqlog_rows for item in self.origins),
            "LOG_SCRIPT": sum(item.log_script_rows for item in self.origins),
            "NODELOCK": self.nodelock_rows,
        }

    @property
    def rows_to_remove(self) -> int:
        """Rows that would go, of all tables."""
        return sum(self.to_remove.values())


def within(plan: CleanupPlan, reviewed: Reviewed) -> CleanupPlan:
    """The part of a plan that was reviewed: what has been confirmed since then stays for the next cleanup.

    Rows of an origin or a pair that is cut short are told as at most so many.
    """
    return replace(
        plan,
        origins=tuple(_origin_within(item, reviewed.events.get(item.origin)) for item in plan.origins),
        pairs=tuple(
            _pair_within(item, reviewed.confirmations.get((item.origin, item.receiver), 0))
            for item in plan.pairs
        ),
        nodelock_rows=plan.nodelock_rows if plan.nodelock_rows <= reviewed.nodelock_rows else 0,
    )


def _origin_within(item: OriginPlan, bound: int | None) -> OriginPlan:
    if item.bound is None or (bound is not None and item.bound <= bound):
        return item
    if bound is None:
        return replace(
            item, bound=None, rows_to_remove=0, syncs_to_remove=0, seqlog_rows=0, log_script_rows=0
        )
    # The bound of a plan is a SYNC that stays: what follows the events is cut there too.
    return replace(item, bound=bound, oldest_sync=bound)


def _pair_within(item: PairPlan, keep: int) -> PairPlan:
    end = item.newest + 1 if item.keep is None else item.keep
    if not item.rows_to_remove or end <= keep:
        return item
    return replace(item, keep=keep, rows_to_remove=item.rows_to_remove if keep else 0)


@dataclass(frozen=True, slots=True)
class Session:
    """A session of the target that stands in the way of emptying a log table.

    Args:
        pid: None: a prepared transaction.
        age_s: of its transaction; None: this role may not see it.
        has_lock: it holds a lock on the table that is to be emptied.
        is_older: its transaction began before the switch, and has written or read the log's status: it may
            still write to that table.
    """

    pid: int | None
    application_name: str
    user: str
    state: str | None
    age_s: float | None
    backend_xid: int | None
    backend_xmin: int | None
    has_lock: bool
    is_older: bool


@dataclass(frozen=True, slots=True)
class LogTable:
    """One of the two log tables; rows as the target's statistics have them (None: never counted)."""

    name: str
    rows_estimate: int | None
    bytes: int
    is_empty: bool


@dataclass(frozen=True, slots=True)
class LogStatusRead:
    """Where the log switch stands.

    Args:
        started_at: when the last switch began, as sl_registry has it.
        origins: that have rows in the other table.
        needs_healing: the status calls the other table clean, and it has rows: slons do not read them.
    """

    status: LogStatus
    active: LogTable
    other: LogTable
    started_at: datetime | None
    origins: tuple[LogOrigin, ...]
    sessions: tuple[Session, ...]
    needs_healing: bool


@dataclass(frozen=True, slots=True)
class Started:
    """What a start of the log switch came to.

    NOT_CLEAN: the table that would be written next has rows; nothing was changed: heal first.
    """

    outcome: Literal["STARTED", "ALREADY_SWITCHING", "NOT_CLEAN"]
    before: LogStatus
    after: LogStatus


@dataclass(frozen=True, slots=True)
class Finished:
    """The old table is empty, and the status says so; IDLE: no switch was under way.

    Args:
        table: that was emptied; BY_ANOTHER: somebody else has ended the switch meanwhile.
        index_problem: why the cluster's partial indices could not be brought up to date.
    """

    outcome: Literal["FINISHED", "BY_ANOTHER", "IDLE"]
    before: LogStatus
    after: LogStatus
    table: str | None
    index_problem: str | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """The old table may not be emptied yet; nothing was changed, or it was emptied and is written again.

    Args:
        why: LOCKED: somebody holds a lock on it. OLD_TRANSACTION: one that began before the switch may still
            write to it. NOT_DRAINED: see `origins`.
    """

    why: Literal["LOCKED", "OLD_TRANSACTION", "NOT_DRAINED"]
    status: LogStatus
    table: str
    origins: tuple[LogOrigin, ...] = ()
    sessions: tuple[Session, ...] = ()


@dataclass(frozen=True, slots=True)
class Healed:
    """A clean log table had rows: the status is a switch of the same active table again."""

    before: LogStatus
    after: LogStatus
    table: str


Classification = Literal["AS_PLANNED", "MORE_BY_NEWER_CONFIRMATIONS", "ALARM"]


@dataclass(frozen=True, slots=True)
class NativeResult:
    """What the program's function left, held against the plan.

    Args:
        removed: rows by step, as planned; ALARM and MORE: `differences` has what is otherwise.
        status: of the log afterwards.
        differences: sentences.
        repeated: an earlier attempt had done it; then there is no plan.
    """

    plan: CleanupPlan | None
    classification: Classification
    removed: dict[Step, int]
    status: LogStatus
    differences: tuple[str, ...] = field(default_factory=tuple)
    repeated: bool = False
