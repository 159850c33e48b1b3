"""What the overview, the stream of events and the series answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lethe_client.literals import (
    AttentionCode,
    BackupState,
    HealthState,
    JobKind,
    JobState,
    Severity,
    StoreKind,
)
from lethe_client.results import Finding, Result


@dataclass(frozen=True, kw_only=True)
class FleetEvent(Result):
    """One event of the stream; `number` is where a later stream goes on."""

    number: int
    type: str
    kind: str = ""
    store: str | None = None
    subject: str = ""
    seq: int = 0
    at: datetime | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_reset(self) -> bool:
        """Whether events before it are not kept any more: look at the overview again."""
        return self.type == "reset"


@dataclass(frozen=True, kw_only=True)
class Attention(Result):
    """Something that needs somebody."""

    code: AttentionCode
    severity: Severity
    subject: str
    store: str | None = None
    since: datetime | None = None
    detail: str = ""
    help: str = ""


@dataclass(frozen=True, kw_only=True)
class Health(Result):
    """The last check of a store."""

    state: HealthState
    checked_at: datetime | None = None
    age: timedelta | None = None
    reachable: bool | None = None
    findings: tuple[str, ...] = ()
    details: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Work(Result):
    """A job that has not ended."""

    id: str
    kind: JobKind
    state: JobState
    since: datetime | None = None
    waits_for: str | None = None
    ref: str | None = None
    next_look: datetime | None = None
    fraction: float | None = None
    eta: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class VerbTimes(Result):
    """When a verb last succeeded on a store, and when it comes next."""

    verb: str
    last_success_at: datetime | None = None
    next_due_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Lag(Result):
    """How far the consumer that is furthest behind is behind; `seconds` None: it has never confirmed."""

    consumer: str
    seconds: float | None = None
    events: int | None = None


@dataclass(frozen=True, kw_only=True)
class BackupUnderWay(Result):
    """A backup that has not ended."""

    id: str
    state: BackupState
    since: datetime
    label: str | None = None
    lease_expires_at: datetime | None = None
    valid_now: bool = False
    total_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class StoreOverview(Result):
    """A store at one look."""

    id: str
    kind: StoreKind
    health: Health
    labels: Mapping[str, str] = field(default_factory=dict)
    suspended: bool = False
    jobs: Mapping[str, int] = field(default_factory=dict)
    work: tuple[Work, ...] = ()
    lag: Lag | None = None
    verbs: tuple[VerbTimes, ...] = ()
    backups: tuple[BackupUnderWay, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Counters(Result):
    """What there is, of all that the token may see."""

    stores: int
    stores_unready: int = 0
    stores_stale: int = 0
    jobs: Mapping[str, int] = field(default_factory=dict)
    ended_last_day: Mapping[str, int] = field(default_factory=dict)
    backups: int = 0
    instances: int | None = None


@dataclass(frozen=True, kw_only=True)
class Overview(Result):
    """A page of stores, the counters, and what needs somebody first."""

    at: datetime
    counters: Counters
    attention: tuple[Attention, ...] = ()
    attention_counts: Mapping[str, int] = field(default_factory=dict)
    attention_total: int = 0
    batches: tuple[Work, ...] = ()
    stores: tuple[StoreOverview, ...] = ()
    next_page_token: str = ""


@dataclass(frozen=True, kw_only=True)
class SeriesPoint(Result):
    """What lies in a piece of time that begins at `at`."""

    at: datetime
    sum: float
    mean: float
    max: float
    last: float


@dataclass(frozen=True, kw_only=True)
class Series(Result):
    """One series; where it adds up the sums tell, else mean, max and last."""

    name: str
    unit: str
    adds_up: bool
    points: tuple[SeriesPoint, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StoreSeries(Result):
    """The series of a store."""

    store: str
    window: str
    step: timedelta
    begins_at: datetime
    ends_at: datetime
    series: tuple[Series, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WhoAmI(Result):
    """What a token is and may do; `stores` None: all."""

    token_id: str
    name: str
    scopes: tuple[str, ...] = ()
    stores: tuple[str, ...] | None = None
    expires_at: datetime | None = None
    provider: bool = False
