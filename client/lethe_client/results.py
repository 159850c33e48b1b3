"""What Lethe answers, as frozen values; `raw` is the JSON object with the members of later versions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from lethe_client.literals import (
    FindingSeverity,
    JobKind,
    JobState,
    PoolState,
    SlotState,
    StoreKind,
    StoreMode,
)

TERMINAL: Final = frozenset({"SUCCEEDED", "FAILED", "ABORTED", "ABANDONED"})

Raw = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What all answers have; equality and printing leave `raw` out."""

    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Suspension(Result):
    reason: str = ""
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Finding(Result):
    """`severity` is ERROR, WARNING or INFO."""

    code: str
    severity: FindingSeverity
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Store(Result):
    """A registered target; `etag` is what update and delete send as If-Match.

    `warnings` come with a registration or a change: SAME_TARGET, other stores of this kind on the target.
    """

    id: str
    kind: StoreKind
    url: str | None = None
    path: str | None = None
    mode: StoreMode | None = None
    extinction_filter: str | None = None
    backups: str | None = None
    schema: str | None = None
    table_prefix: str | None = None
    time_zone: str | None = None
    rid: int | None = None
    generation: str | None = None
    cluster: str | None = None
    bind_dn: str | None = None
    suffix: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    runs_on: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    has_password: bool = False
    suspended: Suspension | None = None
    target_identity: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    warnings: tuple[Finding, ...] = ()
    etag: str = field(default="", repr=False, compare=False)

    @property
    def target(self) -> str:
        """What it is registered for: a URL, or the directory of an environment."""
        return self.url or self.path or ""


@dataclass(frozen=True, kw_only=True)
class TableSize(Result):
    table: str
    rows_estimate: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class CheckReport(Result):
    ok: bool
    reachable: bool = False
    identity: str | None = None
    server_version: Any = None
    layout: str | None = None
    clock_difference_s: float | None = None
    time_encoding: str | None = None
    ledger: Any = None
    permissions_missing: tuple[Any, ...] = ()
    sizes: tuple[TableSize, ...] = ()
    conflicts: tuple[Any, ...] = ()
    findings: tuple[Finding, ...] = ()
    can: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Recovery(Result):
    epoch_before: int | None = None
    epoch_after: int | None = None
    foreign_jobs: tuple[Any, ...] = ()
    given_up: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Progress(Result):
    """`fraction` 0 to 1, `rate_per_s` in `unit` per second without paused time.

    `removed`: rows that are gone, where `done` counts all that were examined.
    """

    unit: str = ""
    done: int = 0
    total: int | None = None
    removed: int | None = None
    total_is_estimate: bool = False
    fraction: float | None = None
    rate_per_s: float | None = None
    eta: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Throttle(Result):
    requested: Any = None
    effective: Any = None
    cause: str | None = None


@dataclass(frozen=True, kw_only=True)
class WaitingOn(Result):
    """`since` when (looks in between do not count), `cause`: what the last look has met, `help`: a page."""

    kind: str
    ref: str | None = None
    until: datetime | None = None
    since: datetime | None = None
    next_look: datetime | None = None
    cause: str | None = None
    help: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobError(Result):
    """`help` is the page that says what the code means, and what to do."""

    code: str
    title: str = ""
    detail: str = ""
    retryable: bool = False
    help: str | None = None


@dataclass(frozen=True, kw_only=True)
class Job(Result):
    """`state` is QUEUED, RUNNING, WAITING, PAUSING, PAUSED, ABORTING, or one of TERMINAL.

    `silence_proved` false: whether it still writes at its target is not known.
    """

    id: str
    kind: JobKind
    state: JobState
    store: str | None = None
    subject: Raw | None = None
    parent_id: str | None = None
    reason: str | None = None
    requested_by: str | None = None
    engine: str = ""
    params: Raw = field(default_factory=dict)
    result: Raw | None = None
    error: JobError | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    updated_at: datetime | None = None
    not_before: datetime | None = None
    waiting_on: tuple[WaitingOn, ...] = ()
    throttle: Throttle = field(default_factory=Throttle)
    progress: Progress = field(default_factory=Progress)
    attempt: int = 0
    crash_count: int = 0
    retries: int = 0
    retried_from: str | None = None
    silence_proved: bool | None = None
    fenced_off_at: datetime | None = None
    runs_on: tuple[str, ...] = ()
    instance: str | None = None
    spark: Raw | None = None
    etag: str = field(default="", repr=False, compare=False)

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL


@dataclass(frozen=True, kw_only=True)
class JobEvent(Result):
    """One entry of a job's own sequence; `type` is state, progress, warning or throttle."""

    seq: int
    type: str
    at: datetime | None = None
    data: Raw = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ArchiveFile(Result):
    """`state` is VALID, or ABANDONED where the transaction that it was written for did not commit."""

    path: str
    unit_id: str = ""
    table: str | None = None
    rows: int | None = None
    bytes: int | None = None
    sha256: str | None = None
    state: str = ""


@dataclass(frozen=True, kw_only=True)
class Archive(Result):
    """`file_list` is there only where one archive was asked for."""

    job_id: str
    store: str = ""
    directory: str = ""
    created_at: datetime | None = None
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None
    counts: str = "EXACT"
    instance: str | None = None
    file_list: tuple[ArchiveFile, ...] = ()
    expires_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Token(Result):
    """`token` is the secret, there only in the answer that created it."""

    id: str
    name: str = ""
    scopes: tuple[str, ...] = ()
    stores: tuple[str, ...] | None = None
    expires_at: datetime | None = None
    created_at: datetime | None = None
    created_by: str | None = None
    revoked_at: datetime | None = None
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class Parameter(Result):
    """A seed's parameter with the value in effect; `store` is the scope that it was asked for."""

    name: str
    type: str = ""
    value: Any = None
    default: Any = None
    source: str = ""
    minimum: Any = None
    maximum: Any = None
    unit: str | None = None
    description: str = ""
    aliases: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    in_use: bool = True
    store: str | None = None
    etag: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class AuditEvent(Result):
    id: Any = None
    at: datetime | None = None
    token_id: str | None = None
    actor: str | None = None
    action: str = ""
    subject_type: str = ""
    subject_id: str = ""
    store: str | None = None
    request_id: str | None = None
    seq: int | None = None
    hash: str | None = None


@dataclass(frozen=True, kw_only=True)
class Instance(Result):
    """A process that runs jobs; `alive` means a recent heartbeat."""

    id: str
    hostname: str = ""
    role: str = ""
    version: str = ""
    labels: tuple[str, ...] = ()
    alive: bool = False
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    stopped_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class SparkSlot(Result):
    number: int
    state: SlotState
    job_class: str | None = None
    leased_for: timedelta | None = None
    jobs_run: int = 0


@dataclass(frozen=True, kw_only=True)
class SparkExecutor(Result):
    id: str
    address: str = ""
    cores: int = 0
    tasks: int = 0
    memory_bytes: int = 0
    memory_used_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class SparkThreshold(Result):
    """From how much work of one kind on AUTO takes Spark; None: never by itself."""

    kind: str
    unit: str = ""
    least: int | None = None
    least_cold: int | None = None
    source: str = ""
    basis: str = ""


@dataclass(frozen=True, kw_only=True)
class SparkPoolState(Result):
    """The pool of one instance; `exchange` counts the units of all jobs that run on it."""

    instance: str
    state: PoolState
    since: datetime | None = None
    draining: bool = False
    master: str | None = None
    spark_version: str | None = None
    slots: tuple[SparkSlot, ...] = ()
    exchange: Mapping[str, Any] = field(default_factory=dict)
    rebuilds: int = 0
    failed_rebuilds: int = 0
    last_error: str | None = None
    start_took: timedelta | None = None
    context_age: timedelta | None = None
    executors: int | None = None
    uses_cds: bool = False
    limits: Mapping[str, Any] = field(default_factory=dict)
    cores: int | None = None
    memory_bytes: int | None = None
    executor_list: tuple[SparkExecutor, ...] = ()
    thresholds: tuple[SparkThreshold, ...] = ()
    calibration: Mapping[str, Any] = field(default_factory=dict)
