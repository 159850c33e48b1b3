"""What is seen of replicas of 389 Directory Server: health, topology, lost changes."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from lethe_client.results import Result


@dataclass(frozen=True, kw_only=True)
class Ds389Lag(Result):
    """How far behind in the changes of one replica; the truth lies between `at_least` and `at_most`."""

    rid: int
    supplier_csn: str
    consumer_csn: str | None = None
    at_least: timedelta = timedelta()
    at_most: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class Ds389Ruv(Result):
    """What a server has of one replica."""

    rid: int
    url: str = ""
    min_csn: str | None = None
    max_csn: str | None = None


@dataclass(frozen=True, kw_only=True)
class Ds389Finding(Result):
    """One thing that is wrong; `measured` and `limit` are in seconds, or are not there."""

    code: str
    severity: str
    servers: tuple[str, ...] = ()
    rid: int | None = None
    agreement: str | None = None
    detail: str = ""
    advice: str = ""
    measured: float | None = None
    limit: float | None = None


@dataclass(frozen=True, kw_only=True)
class Ds389Server(Result):
    """A server as it was looked at; `as_of` None: it could not be asked."""

    store: str
    status: str
    rid: int | None = None
    role: str | None = None
    as_of: datetime | None = None
    clock_difference: timedelta | None = None
    generation: str | None = None
    version: str = ""
    changes: int | None = None
    ruv: tuple[Ds389Ruv, ...] = ()
    lags: tuple[Ds389Lag, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ds389Agreement(Result):
    """An agreement as its supplier tells of it; `consumer` None: no registered store is there."""

    supplier: str
    name: str
    host: str = ""
    port: int = 389
    consumer: str | None = None
    enabled: bool = True
    updating: bool = False
    initialising: bool = False
    state: str = ""
    status: str = ""
    init_status: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    sent: int = 0
    skipped: int = 0
    lags: tuple[Ds389Lag, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ds389Health(Result):
    """A server or all of a suffix; `status` is OK, WARNING, CRITICAL or UNKNOWN."""

    status: str
    suffix: str = ""
    servers: tuple[Ds389Server, ...] = ()
    findings: tuple[Ds389Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ds389Topology(Result):
    """Who supplies whom, and how far everybody is."""

    suffix: str = ""
    servers: tuple[Ds389Server, ...] = ()
    agreements: tuple[Ds389Agreement, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ds389LostChange(Result):
    """A change that a server lacks although its RUV covers it; `why` is JUMPED, REFUSED or HOLE."""

    csn: str
    server: int
    why: str
    proved: bool = True
    agreement: str | None = None
    at: datetime | None = None
    after: str | None = None
    upto: str | None = None
    result: int | None = None


@dataclass(frozen=True, kw_only=True)
class Ds389Session(Result):
    """A session beside the lossless rule, in numbers of known changes."""

    agreement: str
    outcome: str
    at: datetime | None = None
    consumer: int | None = None
    reason: str | None = None
    should: int = 0
    sent: int = 0
    held: int = 0
    lost: int = 0


@dataclass(frozen=True, kw_only=True)
class Ds389Lost(Result):
    """The answer; `known` is how many different changes anything given names."""

    known: int = 0
    lost: tuple[Ds389LostChange, ...] = ()
    sessions: tuple[Ds389Session, ...] = ()
