"""What waits to be delivered by SymmetricDS, as the checks of its store have seen it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from lethe_client.results import Result


@dataclass(frozen=True, kw_only=True)
class BacklogTrend(Result):
    """How it has changed in a window; `is_growing` None: too few looks. `since`: when growth was noticed."""

    window: timedelta | None = None
    looks: int = 0
    batches_per_hour: float | None = None
    rows_per_hour: float | None = None
    is_growing: bool | None = None
    rise: int | None = None
    since: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class BacklogHolder(Result):
    """The oldest batch that waits for a node, and why; `holds_purge`: it is older than the retention."""

    node: str
    channel: str
    batch: int
    why: str = ""
    status: str | None = None
    at: datetime | None = None
    age: timedelta | None = None
    holds_purge: bool = False
    heartbeat_at: datetime | None = None
    advice: str = ""


@dataclass(frozen=True, kw_only=True)
class BacklogPair(Result):
    """What of a channel waits for a node."""

    node: str
    channel: str
    batches: int = 0
    errors: int = 0
    rows: int = 0
    oldest_batch: int | None = None
    oldest_at: datetime | None = None
    batches_per_hour: float | None = None
    is_growing: bool | None = None


@dataclass(frozen=True, kw_only=True)
class BacklogSample(Result):
    """What waited at a look; None: the look did not tell what was asked for."""

    at: datetime
    batches: int | None = None
    errors: int | None = None
    rows: int | None = None
    is_at_least: bool = False


@dataclass(frozen=True, kw_only=True)
class Backlog(Result):
    """The backlog of a store; `status` is OK, WARNING, CRITICAL or UNKNOWN."""

    store: str
    status: str
    checked_at: datetime | None = None
    as_of: datetime | None = None
    problem: str | None = None
    interval: timedelta | None = None
    retention: timedelta | None = None
    batches: int = 0
    errors: int = 0
    rows: int = 0
    is_at_least: bool = False
    trend: BacklogTrend
    holders: tuple[BacklogHolder, ...] = ()
    pairs: tuple[BacklogPair, ...] = ()
    pairs_total: int = 0
    samples: tuple[BacklogSample, ...] = ()
