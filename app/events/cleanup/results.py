"""The results of event cleanups and of log switches. A stopped cleanup says what it had done by then."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from app.archives.results import KeptArchive
from app.events.cleanup.models import CleanupRule, CleanupVia, CleanupWarning, LogOriginRead
from app.events.cleanup.switch.models import LogSessionRead, SwitchAction
from app.kit.durations import Duration
from app.kit.model import Model

STOPPED = "Null: it was stopped before its end."


class CleanedOrigin(Model):
    """The events of one origin after a cleanup."""

    origin: int
    bound: int | None = Field(description="Events below it were to go; null: none.")
    rows_left: int
    first_seqno: int
    last_seqno: int
    oldest_sync: int | None
    held: str | None = Field(description="Why no more went.")


class LogBlockedRead(Model):
    """What keeps a log table from being emptied."""

    why: str = Field(description="NOT_DRAINED, LOCKED or OLD_TRANSACTION.")
    table: str
    origins: list[LogOriginRead] | None = None
    sessions: list[LogSessionRead] | None = None


class LogStepRead(Model):
    """What the step of the log switch came to."""

    step: str = Field(
        description="NONE: not wanted. BY_PROGRAM: the cluster's own function did it. DONE_BEFORE: an attempt"
        " before did. Else BLOCKED, HEALED, or what the step did."
    )
    status: int = Field(description="Of sl_log_status, 0 to 3.")
    status_before: int | None = None
    emptied: str | None = Field(default=None, description="The table that was emptied.")
    index_problem: str | None = None
    blocked: LogBlockedRead | None = None
    warning: CleanupWarning | None = None


class EventCleanupResult(Model):
    """What a cleanup has removed, what stays, and what became of the log tables."""

    via: CleanupVia | None = Field(default=None, description=STOPPED)
    rule: CleanupRule | None = None
    confirmed_before: datetime | None = Field(
        default=None, description="Younger confirmations did not count."
    )
    interval: Duration | None = None
    interval_source: str | None = None
    counts: Literal["EXACT", "AT_LEAST", "PLANNED"] = Field(
        description="EXACT by the target's ledger; PLANNED: by the plan, the cluster's function did it."
    )
    removed: dict[str, int] = Field(description="Rows by table.")
    planned_rows: int | None = Field(default=None, description="Null: nobody had to count them.")
    plan_id: str | None = Field(default=None, description="The plan that was executed.")
    planned: dict[str, int] | None = Field(default=None, description="Rows of that plan, by table.")
    fewer_than_planned: int | None = None
    origins: list[CleanedOrigin] | None = Field(default=None, description=STOPPED)
    log_switch: LogStepRead | None = Field(default=None, description=STOPPED)
    classification: str | None = Field(
        default=None, description="What the function left, held against the plan; AS_PLANNED for BUILTIN."
    )
    differences: list[str] | None = None
    archive: KeptArchive | None
    units: int = Field(description="Transactions.")
    longest_hold_ms: int | None = Field(default=None, description="The longest transaction.")
    warnings: list[CleanupWarning] | None = Field(default=None, description=STOPPED)


class LogSwitchResult(Model):
    """How a log switch has ended."""

    action: SwitchAction
    outcome: str = Field(
        description="STARTED, ALREADY_SWITCHING, FINISHED, FINISHED_ELSEWHERE (by somebody else),"
        " NOTHING_TO_FINISH or TIMED_OUT."
    )
    started: bool = Field(description="By this job.")
    status_before: int = Field(description="Of sl_log_status, 0 to 3.")
    status: int
    active: str = Field(description="The table that is written.")
    emptied: str | None
    waited_for: Duration
    warnings: list[CleanupWarning]
    blocked: LogBlockedRead | None = Field(default=None, description="TIMED_OUT: what it waited for.")
