"""Erasure cycles over HTTP: the request, the snapshot that a job keeps, and what is answered."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from app.erase.rows import CycleState, EraseKind, FileState, Origin
from app.jobs.models import ThrottleSetting, WaitingOn
from app.jobs.plans.reviewed_plan import DRIFT_WITHOUT_PLAN, MaxDrift
from app.jobs.states import JobState
from app.kit.durations import Duration, read_duration
from app.kit.model import Model
from app.kit.values import Text
from app.settings import EngineChoice
from app.stores.models import LimitsRead

SPAN_MAX = timedelta(days=36_500)


def _bounded(value: timedelta) -> timedelta:
    if value > SPAN_MAX:
        raise ValueError("at most P36500D")
    return value


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("longer than PT0S; a cycle without a throttle has `duration: PT0S`")
    return value


Span = Annotated[Duration, BeforeValidator(read_duration), AfterValidator(_bounded)]
Period = Annotated[Span, AfterValidator(_positive)]


class CycleRequest(Model):
    """What to erase, and over which time."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"period": "P25D", "reason": "erasure within 60 days"},
                {"min_file_age": "PT0S", "duration": "PT0S", "reason": "before the disk is given back"},
            ]
        },
    )

    period: Period | None = Field(
        default=None,
        description="Age of the files and length of the cycle; null: the store's je.erase.period.",
    )
    min_file_age: Span | None = Field(default=None, description="With `duration`, instead of `period`.")
    duration: Span | None = Field(default=None, description="PT0S: no throttle, no end, no rest.")
    kinds: list[EraseKind] | None = Field(
        default=None,
        min_length=1,
        max_length=len(EraseKind),
        description="Null: what the store's four je.erase.* switches say.",
    )
    engine: EngineChoice | None = Field(default=None, description="Null: the service's default.")
    throttle: ThrottleSetting | None = Field(
        default=None,
        description="Upper bounds besides the cycle's own throttle; rows_per_s is not known here.",
    )
    plan_id: str | None = Field(
        default=None,
        pattern=r"^job_[0-9a-z]{26}$",
        description="Erase entries of this plan and no others, or 412. The age of the files is the plan's;"
        " `duration` may be another one.",
    )
    max_drift: MaxDrift | None = Field(
        default=None,
        description="With plan_id: how many of the reviewed entries may be gone or needed by now, a number or"
        " a share below 1; more are 412, or end the cycle before its first write. Without it any number may.",
    )
    reason: Text | None = Field(default=None, max_length=500)

    @model_validator(mode="after")
    def _one_length(self) -> "CycleRequest":
        if self.max_drift is not None and self.plan_id is None:
            raise ValueError(DRIFT_WITHOUT_PLAN)
        if self.plan_id is not None and (self.period is not None or self.min_file_age is not None):
            raise ValueError("with plan_id the plan's own age of files is used: name at most duration")
        if self.period is not None and (self.min_file_age is not None or self.duration is not None):
            raise ValueError("period excludes min_file_age and duration")
        if self.plan_id is None and (self.min_file_age is None) != (self.duration is None):
            raise ValueError("min_file_age and duration are given together")
        if self.throttle is not None and self.throttle.rows_per_s is not None:
            raise ValueError("a cycle has no rows_per_s: bytes_per_s and intensity")
        return self


class CycleParams(Model):
    """The snapshot of a cycle at its submission.

    Attributes:
        plan: set in the params of a PLAN job.
        target: what the store named then.
        cutoff, planned_entries: of the reviewed plan that is executed.
    """

    plan: Literal["ERASURE"] | None = None
    period: Duration | None
    min_file_age: Duration
    duration: Duration
    follows_period: bool
    follows_kinds: bool
    kinds: list[EraseKind]
    engine: EngineChoice | None
    throttle: ThrottleSetting | None
    origin: Origin
    target: dict[str, Any]
    plan_id: str | None = None
    max_drift: int | float | None = None
    cutoff: datetime | None = None
    planned_entries: int | None = None


class Place(Model):
    """A place in the log."""

    file: str
    offset: int


class CauseRead(Model):
    """Why nothing of a file is erased."""

    cause: str
    detail: str


class AmountRead(Model):
    """So many entries, and the bytes of their items."""

    code: str = Field(description="A reason to erase, or a cause to keep.")
    entries: int
    bytes: int


class RefusalRead(Model):
    """What ended the work at a file, or held it up last."""

    code: str
    detail: str
    ref: str = ""
    offset: int | None = None
    step: str | None = None


class EraserStats(Model):
    """JE's eleven statistics, by JE's names; read and written bytes are real bytes."""

    model_config = ConfigDict(populate_by_name=True)

    eraserCycleStart: str = Field(description="UTC; empty before the first cycle.")  # noqa: N815
    eraserCycleEnd: str  # noqa: N815
    eraserFilesRemaining: int  # noqa: N815
    eraserFilesErased: int  # noqa: N815
    eraserFilesDeleted: int  # noqa: N815
    eraserFilesAlreadyDeleted: int  # noqa: N815
    eraserFSyncs: int  # noqa: N815
    eraserReads: int  # noqa: N815
    eraserReadBytes: int  # noqa: N815
    eraserWrites: int  # noqa: N815
    eraserWriteBytes: int  # noqa: N815


class StatsRead(Model):
    """The statistics of a store."""

    store: str
    erasure_cycle_id: str | None = Field(description="The newest cycle.")
    cycle: EraserStats = Field(description="Of the newest cycle alone.")
    cumulative: EraserStats = Field(description="Of all cycles of the store that Lethe has run.")
    not_begun: str | None = Field(
        description="Why a cycle that is due by itself did not begin; null: none is."
    )


class VetoRead(Place):
    """An entry that the rule would erase and a tree still reaches."""

    reason: str


class PlanFacts(Model):
    """What a plan says of the log."""

    first_active: Place
    checkpoint: Place
    vetoed_count: int = Field(description="More than none: the plan wants a look.")
    vetoed: list[VetoRead] = Field(description="The first of them.")
    missing_count: int
    vlsn: dict[str, int | None] | None = Field(description="Null: the environment is not replicated.")
    torn_at: Place | None
    nodes_wait: bool = Field(description="LIVE: old nodes wait for a later checkpoint.")
    after_checkpoint: AmountRead | None = Field(
        default=None,
        description=(
            "What JE would free by beginning a new file and making a checkpoint, as far as the log tells: at "
            "least so much. `lethe je helper` gives what does that."
        ),
    )


class CycleThrottleRead(Model):
    """The cycle's own throttle."""

    total_units: int = Field(description="Three for each byte of the selected files.")
    done_units: int = Field(description="What a file did not need of its units counts as done at its end.")
    rate_per_s: float | None = Field(description="Units per second; null: no throttle.")
    next_at: datetime | None = Field(description="No work before it.")


class CycleRead(Model):
    """A cycle as clients see it."""

    id: str
    store: str
    job_id: str
    job_state: JobState
    state: CycleState
    origin: Origin
    mode: str | None = Field(description="Of the plan; null before it.")
    engine: str
    period: Duration | None
    min_file_age: Duration
    duration: Duration
    kinds: list[EraseKind]
    created_at: datetime
    started_at: datetime | None
    cutoff: datetime | None = Field(description="Files created at or before it are selected.")
    ends_at: datetime | None = Field(description="Null: it has no end, or has not started.")
    ended_at: datetime | None
    waiting_on: list[WaitingOn]
    throttle: CycleThrottleRead
    files: dict[FileState, int] = Field(description="How many files stand in which state.")
    plan: PlanFacts | None
    incomplete: dict[str, list[str]] | None = Field(description="Files that remained, by cause.")
    stats: EraserStats


class CycleFileRead(Model):
    """A file of a cycle as clients see it."""

    file: str
    state: FileState
    size_bytes: int
    created_at: datetime | None
    causes: list[CauseRead]
    protected_by: str | None = Field(description="Id of the protection that holds it now.")
    planned: list[AmountRead] = Field(description="What is erased, by reason.")
    kept: list[AmountRead] = Field(description="What is not erased, by cause.")
    reserved: bool = Field(description="JE has put it aside for deletion.")
    barren: bool = Field(description="Nothing in it is live or vetoed.")
    entries_planned: int
    entries_done: int = Field(description="Of the rounds that have ended.")
    entries_erased: int | None = Field(description="As the proof has found them.")
    rounds: int
    passes: int
    sha256_before: str | None
    sha256_expected: str | None
    sha256_after: str | None
    sha256_now: str | None = Field(description="The digest that holds now; null: none is known to.")
    erasure_generation: int = Field(description="How many passes have changed the file.")
    mtime_before: datetime | None
    first_write_at: datetime | None
    finished_at: datetime | None
    fsync_times: list[Duration]
    fsyncs: int
    reads: int
    read_bytes: int
    writes: int
    write_bytes: int
    refusal: RefusalRead | None
    proved: bool | None
    proved_by: str | None


class PlannedFileRead(Model):
    """One file of a plan."""

    file: str
    size_bytes: int
    created_at: datetime | None
    causes: list[CauseRead]
    erase: list[AmountRead]
    keep: list[AmountRead]
    reserved: bool
    deleted: bool = Field(default=False, description="The whole file goes: JE has put it aside.")


class ErasurePlanRead(Model):
    """What a cycle would do now; nothing was written."""

    plan_id: str
    store: str
    mode: str
    kinds: list[EraseKind]
    cutoff: datetime
    files: list[PlannedFileRead]
    erase: list[AmountRead] = Field(description="Over all files, by reason.")
    keep: list[AmountRead] = Field(description="Over all files: what is not erased, by cause.")
    limits: LimitsRead
    facts: PlanFacts
    expires_at: datetime = Field(description="Until then `plan_id` may be executed.")


class LogEntryRead(Model):
    """One entry of the log: what JE calls isEntryErased, and how to know."""

    file: str
    offset: int
    type: str
    type_number: int
    erased: bool = Field(description="Its type is LOG_ERASED (43).")
    all_zero: bool = Field(description="Nothing of what it held is left.")
    item_bytes: int


def amounts(shown: Mapping[str, Any]) -> list[AmountRead]:
    """Counts by reason or cause, as rows keep them."""
    return [AmountRead(code=code, entries=pair[0], bytes=pair[1]) for code, pair in shown.items()]
