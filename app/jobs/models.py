"""Jobs, instances and the Spark pool as clients see them."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, FiniteFloat, ValidationError

from app.jobs.counting import QUEUED
from app.jobs.rows import InstanceBase, Job, JobBase, JobClass
from app.jobs.states import JobState
from app.kit.durations import Duration
from app.kit.model import Model
from app.kit.texts.help import help_of
from app.kit.values import Text
from app.runbook.entry import Seen
from app.runbook.schemas import codes_of


class WaitingOn(Model):
    """What a job waits for."""

    kind: str
    ref: str
    until: datetime | None = None


class WaitingRead(WaitingOn):
    """What a job waits for, since when and why, and where it says what to do."""

    kind: str = Field(
        description="A code; newer versions may have others. An error of a target: it is tried again.",
        json_schema_extra=codes_of(Seen.WAIT, Seen.TARGET),
    )
    since: datetime | None = Field(default=None, description="Looks in between do not count.")
    next_look: datetime | None = Field(
        default=None, description="When it looks again, at the latest; null: when it is woken, or now."
    )
    cause: str | None = Field(default=None, description="What the last look has met, without secrets.")
    help: str | None = Field(default=None, description="Where the documentation says what to do.")


class ThrottleSetting(Model):
    """Upper bounds of the speed; null: none."""

    rows_per_s: FiniteFloat | None = Field(default=None, gt=0)
    bytes_per_s: FiniteFloat | None = Field(default=None, gt=0)
    intensity: float | None = Field(
        default=None, gt=0, le=1, description="The share of the time that is worked."
    )

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"rows_per_s": 5000}]})


def read_bounds(kept: Mapping[str, Any]) -> ThrottleSetting:
    """The bounds of a job's row; what only a newer version knows, which may work beside us, is left out."""
    known = ThrottleSetting()
    for name in ThrottleSetting.model_fields:
        with suppress(ValidationError):
            bound = ThrottleSetting.model_validate({name: kept.get(name)})
            known = known.model_copy(update={name: getattr(bound, name)})
    return known


class ThrottleRead(Model):
    """What was asked for, what is in effect, and why."""

    requested: ThrottleSetting | None
    effective: ThrottleSetting | None
    cause: str | None


class ProgressRead(Model):
    """How far a job is; computed when it was written, by its pace of late, paused time left out."""

    unit: str = Field(description="Of `done` and `total`; a purge counts the rows that it has examined.")
    done: int
    total: int | None
    removed: int | None = Field(
        default=None, description="Rows that are gone so far, where `done` counts other rows too."
    )
    total_is_estimate: bool
    fraction: float | None
    rate_per_s: float | None
    eta: datetime | None


class JobError(Model):
    """Why a job failed."""

    code: str = Field(
        description="UPPER_SNAKE; stable. Newer versions and peers may have others.",
        json_schema_extra=codes_of(Seen.JOB, Seen.TARGET),
    )
    title: str
    detail: str
    retryable: bool
    help: str | None = Field(default=None, description="Where the documentation says what to do.")


class Subject(Model):
    """The resource that a job works for."""

    type: str
    id: str
    href: str


class SparkUseRead(Model):
    """What a job has taken of Spark."""

    groups: list[str] = Field(description="Of Spark's jobs, the newest last, 50 at most.")
    stages: list[int] = Field(description="Of Spark, the newest last; other jobs' units may be in them.")
    tasks: int = Field(description="That have ended.")
    task_time: Duration = Field(description="Of all tasks together, in Python.")
    cpu_time: Duration = Field(description="Of these, at work.")
    memory_bytes: int = Field(description="The highest of any worker that has run one of its tasks.")


class JobRead(JobBase):
    """A job as clients see it."""

    id: str
    waiting_on: list[WaitingRead]
    throttle: ThrottleRead
    progress: ProgressRead | None
    error: JobError | None
    subject: Subject | None
    instance: str | None = Field(description="The instance that runs it now.")
    spark: SparkUseRead | None = Field(
        default=None,
        description="Of a job that Spark has worked for, when it is asked for by its id.",
    )


class JobEventRead(Model):
    """An event as clients see it."""

    seq: int
    at: datetime
    type: str
    data: dict[str, Any]


class InstanceRead(InstanceBase):
    """An instance as clients see it."""

    id: str
    alive: bool


def read_waiting(job: Job) -> list[WaitingRead]:
    """What a job waits for, as clients see it; since when it does stands in the job's own columns.

    One that stands in the queue waits for a runner: nobody has written that into its row.
    """
    times = {"since": job.waiting_since, "next_look": job.not_before}
    queue = [{"kind": QUEUED, "ref": ""}]
    shown = queue if job.state == JobState.QUEUED else job.waiting_on
    return [WaitingRead(**(item | times), help=help_of(str(item["kind"]))) for item in shown]


class JobSummary(Model):
    """A job in a list: what it is, where it stands and what it waits for."""

    id: str
    kind: str
    store: str | None
    parent_id: str | None
    state: JobState
    requested_by: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    waiting_on: list[WaitingRead]
    fraction: float | None = Field(description="How much is done; null: nobody knows.")
    eta: datetime | None
    error_code: str | None
    act: str | None = Field(description="Which act of its kind: `kind` of its parameters, such as OUTGOING.")
    done: int | None = Field(description="In `unit`; null: not known yet.")
    removed: int | None = Field(description="Rows that are gone, where `done` counts other rows too.")
    unit: str | None
    subject: Subject | None


_SUMMARIZED: Final = tuple(name for name in JobSummary.model_fields if name in Job.model_fields)


def summarize_job(job: Job) -> JobSummary:
    """Show the little of a job that a list needs."""
    progress = job.progress or {}
    fields = {name: getattr(job, name) for name in _SUMMARIZED} | {
        "waiting_on": read_waiting(job),
        "fraction": progress.get("fraction"),
        "eta": progress.get("eta"),
        "error_code": (job.error or {}).get("code"),
        "act": act if isinstance(act := job.params.get("kind"), str) else None,
        "done": progress.get("done"),
        "removed": progress.get("removed"),
        "unit": progress.get("unit"),
    }
    return JobSummary.model_validate(fields)


_SHOWN_AS_THEY_ARE: Final = (*JobBase.model_fields, "id", "progress", "error", "subject")


def read_job(job: Job) -> JobRead:
    """Show a job's row to a client."""
    fields = {name: getattr(job, name) for name in _SHOWN_AS_THEY_ARE}
    fields["waiting_on"] = read_waiting(job)
    if job.error:
        fields["error"] = job.error | {"help": help_of(str(job.error["code"]))}
    requested, effective = (
        None if kept is None else read_bounds(kept)
        for kept in (job.throttle_requested, job.throttle_effective)
    )
    throttle = ThrottleRead(requested=requested, effective=effective, cause=job.throttle_cause)
    return JobRead.model_validate(fields | {"throttle": throttle, "instance": job.lease_instance})


class SparkSlot(Model):
    """One session that can be lent."""

    number: int
    state: Literal["IDLE", "LEASED"]
    job_class: JobClass | None
    leased_for: Duration | None
    jobs_run: int


class SparkWaiting(Model):
    """Somebody who waits for a slot."""

    job_class: JobClass
    waited: Duration


class ExchangeRead(Model):
    """Where units of all jobs are gathered into jobs of Spark."""

    jobs: int = Field(description="Jobs of Lethe that run on Spark now.")
    jobs_waiting: int = Field(description="Those of them of which nothing runs.")
    units_waiting: int
    units_under_way: int
    spark_jobs_running: int
    spark_jobs: int = Field(description="Since the process has started.")
    units_done: int
    units_again: int = Field(description="Run again, because a JVM, a worker or a neighbour ended.")


class SparkLimits(Model):
    """The engine's limits."""

    slots: int
    queue_max: int = Field(description="Jobs that may wait for Spark; then 429 POOL_QUEUE_FULL.")
    min_rows: int = Field(
        description="LETHE_SPARK__MIN_ROWS. AUTO goes by `thresholds`, where this counts if it was set."
    )
    units_ahead_max: int
    task_duration: Duration = Field(description="How much work is one task.")


class SparkThreshold(Model):
    """From how much work of one kind on AUTO takes Spark."""

    kind: Literal["PURGE", "EXTINCTION", "WINDOW", "ERASURE", "VERIFICATION", "AUDIT"] = Field(
        description="Of work: purges, scans of extinctions, windows of replication, erasures, archives"
        " that are read again, and audits."
    )
    unit: Literal["ROWS", "CHANGES", "BYTES"] = Field(description="Of `least` and `least_cold`.")
    least: int | None = Field(description="On a pool that is up; null: however much it is, never by itself.")
    least_cold: int | None = Field(description="Where Spark has to be started first.")
    source: Literal["SETTING", "CALIBRATED", "BUILT_IN"] = Field(
        description="A setting that somebody has named, a calibration of this machine, or the table of Lethe."
    )
    basis: str = Field(description="What it follows from.")


class SparkCalibration(Model):
    """What `lethe spark-pool calibrate` has left in the data directory."""

    state: Literal["NONE", "USED", "REFUSED"] = Field(description="REFUSED: nothing of it is used.")
    made_at: datetime | None = Field(default=None, description="When it was measured.")
    why: str | None = Field(default=None, description="Why it is refused.")


class SparkExecutor(Model):
    """One process that runs tasks, as Spark itself counts it."""

    id: str = Field(description="Spark's own; `driver` where tasks run on this machine.")
    address: str = Field(description="Host and port.")
    cores: int = Field(description="Tasks that it may run at a time.")
    tasks: int = Field(description="That run now.")
    memory_bytes: int = Field(description="Of its heap, for Spark's own storage, at most.")
    memory_used_bytes: int = Field(description="Of `memory_bytes`, now.")


class SparkPoolRead(Model):
    """The pooled Spark session of one instance."""

    instance: str = Field(description="Whose pool this is: each process has its own.")
    state: Literal["STOPPED", "STARTING", "READY", "REBUILDING", "DRAINING", "FAILED"] = Field(
        description="STOPPED: nobody has needed it yet."
    )
    since: datetime
    draining: bool = Field(description="From `:drain` to `:resume`, also of a pool that is not up.")
    master: str | None
    spark_version: str | None
    slots: list[SparkSlot]
    queue: list[SparkWaiting]
    exchange: ExchangeRead
    rebuilds: int
    failed_rebuilds: int = Field(description="In a row; after three the pool is FAILED.")
    last_error: str | None
    start_took: Duration | None = Field(description="The last start; null before the first.")
    context_age: Duration | None = Field(description="Null where no JVM runs.")
    executors: int | None = Field(description="Of a cluster, now; null where there is none.")
    uses_cds: bool
    limits: SparkLimits
    cores: int | None = Field(default=None, description="Of all executors; null where no JVM runs.")
    memory_bytes: int | None = Field(default=None, description="Of all executors, as of each.")
    executor_list: list[SparkExecutor] = Field(
        default=[], description="Looked at every few seconds; empty where no JVM runs."
    )
    thresholds: list[SparkThreshold] = Field(default=[], description="What AUTO goes by now.")
    calibration: SparkCalibration = Field(
        default=SparkCalibration(state="NONE"), description="Of this machine, and whether it is used."
    )


class JobAction(Model):
    """Why it is done."""

    reason: Text | None = Field(default=None, max_length=500)

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "nightly window is over"}]}
    )


class AbandonRequest(Model):
    """An admin says that a job's target is gone for good."""

    reason: Text = Field(min_length=1, max_length=500)

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"reason": "node 3 burnt down on Friday and is not rebuilt"}]},
    )


class PoolRecycle(Model):
    """How the JVM is replaced."""

    force: bool = Field(default=False, description="Do not wait for what runs: its units are run again.")
    reason: Text | None = Field(default=None, max_length=500)

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "new Java"}]})


class PoolAction(Model):
    """Why it is done."""

    reason: Text | None = Field(default=None, max_length=500)

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "maintenance"}]})
