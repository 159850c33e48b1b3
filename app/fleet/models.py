"""The overview, the events and the series as clients see them."""

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import ConfigDict, Field

from app.figures.series import Series
from app.jobs.models import ThrottleSetting
from app.jobs.states import JobState
from app.kit.durations import Duration
from app.kit.model import Model
from app.stores.checks.models import Finding
from app.stores.models import StoreKind


class FleetEvent(Model):
    """One event of the stream."""

    number: int = Field(description="The id of the event, for Last-Event-ID; it only grows.")
    at: datetime
    type: str = Field(
        description="`job.state`, `job.progress`, `job.warning`, `job.throttle`, `backup`, `session`, "
        "`store`, `protection`, `schedule`, `window`."
    )
    kind: str = Field(
        description="Of the job; BACKUP, REPLICATION_SESSION, STORE, PROTECTION, SCHEDULE, WINDOW."
    )
    store: str | None
    subject: str = Field(description="What it is about, as a path below /v1.")
    seq: int = Field(description="Grows with each event of a subject, whatever any clock shows.")
    data: dict[str, Any] = Field(
        description="As in a job's own events; of stores, schedules and windows `change`; else the state."
    )


class StreamBegin(Model):
    """The first event of a stream, `ready` or `reset`."""

    number: int = Field(description="Where it begins: every event that follows has a greater one.")


class Severity(StrEnum):
    """How much somebody is needed."""

    ERROR = "ERROR"
    WARNING = "WARNING"


class AttentionCode(StrEnum):
    """Why somebody is needed."""

    JOB_FAILED = "JOB_FAILED"
    SILENCE_UNPROVEN = "SILENCE_UNPROVEN"
    WAITS_LONG = "WAITS_LONG"
    BACKUP_INVALID = "BACKUP_INVALID"
    SESSION_HALTED = "SESSION_HALTED"
    SESSION_NEEDS_TOTAL = "SESSION_NEEDS_TOTAL"
    SESSION_UNPROVEN = "SESSION_UNPROVEN"
    SESSION_DIVERGED = "SESSION_DIVERGED"
    ERASURE_UNPROVEN = "ERASURE_UNPROVEN"
    REPLICA_RESTORED = "REPLICA_RESTORED"
    STORE_UNREADY = "STORE_UNREADY"
    CHECK_STALE = "CHECK_STALE"
    INSTANCE_SILENT = "INSTANCE_SILENT"


class Attention(Model):
    """Something that needs somebody."""

    code: AttentionCode
    severity: Severity
    store: str | None
    since: datetime | None
    subject: str = Field(description="What it is about, as a path below /v1.")
    detail: str = Field(description="The code of the error, or what is waited for.")
    help: str = Field(description="Where the documentation says what to do.")


class HealthState(StrEnum):
    """What the last check of a store says."""

    OK = "OK"
    WARNING = "WARNING"
    ERROR = "ERROR"
    STALE = "STALE"
    UNKNOWN = "UNKNOWN"


class HealthRead(Model):
    """The last check of a store."""

    state: HealthState = Field(description="STALE: the last check is too old; UNKNOWN: there was none.")
    checked_at: datetime | None
    age: Duration | None
    reachable: bool | None
    findings: list[str] = Field(description="Codes of errors and warnings; `:check` tells all of them.")
    details: list[Finding] = Field(
        default_factory=list, description="The same with severity and detail, where one `store` is asked for."
    )


class WorkRead(Model):
    """A job that has not ended."""

    id: str
    kind: str
    state: JobState
    since: datetime | None = Field(description="Running since; waiting since; else made at.")
    waits_for: str | None
    ref: str | None
    next_look: datetime | None
    fraction: float | None
    eta: datetime | None
    rate_per_s: float | None = Field(description="By its pace of late, in `unit`.")
    unit: str | None
    throttle: ThrottleSetting | None = Field(description="In effect now; null: none.")


class RunningRead(WorkRead):
    """A job that runs now."""

    store: str | None


class VerbRead(Model):
    """When a verb last succeeded on a store, and when it comes next."""

    verb: str
    last_success_at: datetime | None
    next_due_at: datetime | None


class LagRead(Model):
    """How far the consumer that is furthest behind is behind this store."""

    seconds: float | None = Field(description="Null: one has never confirmed.")
    events: int | None = Field(description="SLONY: not confirmed yet.")
    consumer: str = Field(description="An agreement, or a node.")


class BackupUnderWay(Model):
    """A backup that has not ended."""

    id: str
    state: Literal["PREPARING", "ACTIVE"]
    label: str | None
    since: datetime
    lease_expires_at: datetime | None
    valid_now: bool = Field(description="ACTIVE, and its lease has not run out: its files stay as they are.")
    total_bytes: int


class RunningBackup(BackupUnderWay):
    """A backup that has not ended, with its store."""

    store: str


class StoreOverview(Model):
    """A store at one look."""

    id: str
    kind: StoreKind
    labels: dict[str, str]
    suspended: bool
    health: HealthRead
    jobs: dict[str, int] = Field(description="Jobs that have not ended, by state.")
    work: list[WorkRead] = Field(description="Those that run first, then those that wait longest; a few.")
    lag: LagRead | None
    verbs: list[VerbRead]
    backups: list[BackupUnderWay]


class Counters(Model):
    """What there is, of all that the token may see."""

    stores: int
    stores_unready: int
    stores_stale: int
    jobs: dict[str, int] = Field(description="Jobs that have not ended, by state.")
    ended_last_day: dict[str, int] = Field(description="Jobs that ended in the last 24 hours, by state.")
    backups: int = Field(description="Under way.")
    instances: int | None = Field(description="Alive; null for a token that is limited to stores.")


class OverviewRead(Model):
    """All stores at one look; no target is asked."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "at": "2026-11-23T10:00:00Z",
                    "counters": {
                        "stores": 1,
                        "stores_unready": 0,
                        "stores_stale": 0,
                        "jobs": {"RUNNING": 1},
                        "ended_last_day": {"SUCCEEDED": 4},
                        "backups": 0,
                        "instances": 1,
                    },
                    "attention": [
                        {
                            "code": "JOB_FAILED",
                            "severity": "ERROR",
                            "store": "shop",
                            "since": "2026-11-23T02:31:07Z",
                            "subject": f"jobs/job_{'0' * 26}",
                            "detail": "TARGET_AUTH_FAILED",
                            "help": "docs/reference/runbook.md#job_failed",
                        }
                    ],
                    "attention_counts": {"JOB_FAILED": 1},
                    "attention_total": 1,
                    "running": [],
                    "backups": [],
                    "batches": [],
                    "stores": [
                        {
                            "id": "shop",
                            "kind": "SYMMETRICDS",
                            "labels": {"region": "eu"},
                            "suspended": False,
                            "health": {
                                "state": "OK",
                                "checked_at": "2026-11-23T09:58:00Z",
                                "age": "PT2M",
                                "reachable": True,
                                "findings": [],
                            },
                            "jobs": {"RUNNING": 1},
                            "work": [
                                {
                                    "id": f"job_{'0' * 26}",
                                    "kind": "PURGE",
                                    "state": "RUNNING",
                                    "since": "2026-11-23T09:59:10Z",
                                    "waits_for": None,
                                    "ref": None,
                                    "next_look": None,
                                    "fraction": 0.4,
                                    "eta": "2026-11-23T10:01:00Z",
                                    "rate_per_s": 5210.5,
                                    "unit": "rows",
                                    "throttle": {"rows_per_s": 6000},
                                }
                            ],
                            "lag": None,
                            "verbs": [
                                {
                                    "verb": "PURGE",
                                    "last_success_at": "2026-11-22T02:30:40Z",
                                    "next_due_at": "2026-11-24T02:30:00Z",
                                }
                            ],
                            "backups": [],
                        }
                    ],
                    "next_page_token": "",
                }
            ]
        }
    )

    at: datetime
    counters: Counters
    attention: list[Attention] = Field(
        description="What needs somebody first: errors before warnings, the newest first, some of each code;"
        " `attention_max` of them."
    )
    attention_counts: dict[AttentionCode, int] = Field(
        description="How many have each code, whatever is shown; counted up to 10,000 of a sort."
    )
    attention_total: int = Field(description="The sum of these.")
    running: list[RunningRead] = Field(description="Jobs that run now, of all stores; a few.")
    backups: list[RunningBackup] = Field(description="Backups under way, of all stores; a few.")
    batches: list[WorkRead] = Field(description="Jobs over many stores that have not ended; a few.")
    stores: list[StoreOverview] = Field(description="One page of them, by id.")
    next_page_token: str


class SeriesPointRead(Model):
    """What lies in a piece of time; pieces without any value are left out."""

    at: datetime = Field(description="When the piece begins.")
    sum: float
    mean: float
    max: float
    last: float


class SeriesRead(Model):
    """One series."""

    name: Series
    unit: str
    adds_up: bool = Field(description="True: `sum` tells. False: mean, max and last do.")
    points: list[SeriesPointRead]


class StoreSeries(Model):
    """The series of a store, for small pictures."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "store": "shop",
                    "window": "DAY",
                    "step": "PT10M",
                    "begins_at": "2026-11-22T10:00:00Z",
                    "ends_at": "2026-11-23T10:00:00Z",
                    "series": [
                        {
                            "name": "rows_removed",
                            "unit": "rows",
                            "adds_up": True,
                            "points": [
                                {
                                    "at": "2026-11-23T02:30:00Z",
                                    "sum": 18211,
                                    "mean": 9105.5,
                                    "max": 18000,
                                    "last": 211,
                                }
                            ],
                        }
                    ],
                }
            ]
        }
    )

    store: str
    window: Literal["DAY", "MONTH"]
    step: Duration = Field(description="The length of a piece.")
    begins_at: datetime
    ends_at: datetime
    series: list[SeriesRead]
