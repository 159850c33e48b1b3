"""What a directory server tells of its replica of a suffix, and what is found of it. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from spark.formats.ruv import Ruv


class Severity(StrEnum):
    """How bad a finding is, as plugins of Nagios say it."""

    OK = "OK"
    WARNING = "WARNING"
    CRITICAL = "CRITICAL"
    UNKNOWN = "UNKNOWN"


_RANK = {Severity.OK: 0, Severity.UNKNOWN: 1, Severity.WARNING: 2, Severity.CRITICAL: 3}


def rank(severity: Severity) -> int:
    """Orders by what matters more."""
    return _RANK[severity]


class Role(StrEnum):
    """Who writes here: nsDS5ReplicaType 3 takes changes, a HUB passes them on, a CONSUMER only reads."""

    SUPPLIER = "SUPPLIER"
    HUB = "HUB"
    CONSUMER = "CONSUMER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One agreement of a server, as it is now.

    Attributes:
        consumer_rid: as the server itself has learned it; None: not yet, or a consumer that has none.
        state: of nsds5replicaLastUpdateStatusJSON: green, amber or red; "" where no session has been.
        repl_rc: its code, such as 1 (busy), 18 (transient); None: not told.
        init_state: the same of the last total update; "" where there was none.
    """

    name: str
    host: str
    port: int
    consumer_rid: int | None = None
    is_enabled: bool = True
    is_updating: bool = False
    state: str = ""
    repl_rc: int | None = None
    status: str = ""
    init_state: str = ""
    init_status: str = ""
    is_initialising: bool = False
    started_at: datetime | None = None
    ended_at: datetime | None = None
    sent: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Generator:
    """The state of the server's CSN generator, as it was last kept (nsState), in seconds."""

    rid: int
    sampled_s: int
    local_offset_s: int
    remote_offset_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One replica as it was read.

    Attributes:
        at: by our clock, when its RUV had been read.
        clock: by the server's own clock at the same time; None: `cn=monitor` is not shown.
        identity: the name that the replica was given when it was made.
        changelog_age_s: nsslapd-changelogmaxage in seconds; None: nothing is trimmed by age.
    """

    rid: int
    role: Role
    identity: str
    version: str
    at: datetime
    clock: datetime | None
    ruv: Ruv
    agreements: tuple[Agreement, ...] = ()
    generator: Generator | None = None
    changelog_entries: int | None = None
    changelog_age_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From when on something is found, in seconds; 0: no limit."""

    lag_warning_s: float
    lag_critical_s: float
    clock_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFinding:
    """One thing that is wrong.

    Attributes:
        servers: the stores that it is about or that see it, by id.
        rid: the replica that it is about.
        measured, limit: in seconds.
    """

    code: str
    severity: Severity
    detail: str
    advice: str
    servers: tuple[str, ...] = ()
    rid: int | None = None
    agreement: str | None = None
    measured: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a consumer is behind in the changes of one replica.

    Attributes:
        at_least_s: age of the newest change that it lacks.
        at_most_s: age of the newest change that it has; None: it has none.
    """

    rid: int
    supplier_csn: str
    consumer_csn: str | None
    at_least_s: float
    at_most_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An agreement between two replicas; `consumer` None: no registered store is it."""

    supplier: str
    agreement: Agreement
    consumer: str | None
    lags: tuple[Lag, ...] = ()


Readings = Mapping[str, Reading]
"""By store id."""
