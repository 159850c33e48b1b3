"""The backlog of a store, told from what its looks have kept: no target is asked."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlmodel import Session

from app.kinds.parameter import as_timedelta
from app.kinds.symmetricds_backlog import LEAST, PERIOD, SILENT, WINDOW
from app.parameters.service import GlobalValues, effective_among
from app.purge.backlog.holders import holders_of
from app.purge.backlog.models import (
    BacklogHolderRead,
    BacklogPairRead,
    BacklogRead,
    BacklogSampleRead,
    BacklogStatus,
    BacklogTrendRead,
    LookKept,
    PairKept,
)
from app.purge.backlog.rows import BacklogLook, BacklogSample
from app.purge.backlog.samples import (
    FINE_S,
    Pair,
    all_samples,
    fine_samples,
    is_asked,
    points_by_pair,
    sums_of,
)
from app.purge.backlog.trend import LOOKED_BACK, Point, Trend, judge_trend, window_of
from app.settings import Settings
from app.stores.checks.keeping import check_period
from app.stores.rows import Store
from app.stores.service import target_of_row
from spark.purge.reading import backlog as reading

UNKNOWN: Final = Trend(0, None, None, None)
LATE: Final = timedelta(minutes=2)
"""A look that is so much later than twice its interval says nothing any more."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The parameters in effect of a store's backlog.

    Attributes:
        period: of `backlog.period`; zero: it is not looked at.
        interval: from look to look, as checks come.
    """

    period: timedelta
    interval: timedelta
    window: timedelta
    least: int
    silent: timedelta


def limits_of(db: Session, store: Store, values: GlobalValues, settings: Settings) -> Limits:
    """By its parameters; `values` as `global_values` has them."""
    period, window, silent = (
        as_timedelta(effective_among(values, name, store.parameters)) for name in (PERIOD, WINDOW, SILENT)
    )
    interval = max(period, check_period(db, store, values, settings))
    least = int(effective_among(values, LEAST, store.parameters))
    kept = max(interval, timedelta(seconds=FINE_S))  # of looks that come more often one is kept
    return Limits(period, interval, window_of(window, kept), least, silent)


def look_of(db: Session, store: Store) -> BacklogLook | None:
    """The last look at a store's target; None: there was none since the store was led to it."""
    row = db.get(BacklogLook, store.id)
    return None if row is None or row.target != target_of_row(store) else row


def is_capped(samples: Sequence[BacklogSample]) -> bool:
    """Whether more batches waited at the last look than are read: how many, and whose, nobody knows then."""
    return bool(samples) and samples[-1].batches > reading.BATCHES_MAX


def judged(
    samples: Sequence[BacklogSample], limits: Limits, pairs: Collection[Pair]
) -> tuple[Trend, dict[Pair, Trend]]:
    """The trend of all, and of each pair, by the looks of the window and of the day before it."""
    if is_capped(samples):
        return UNKNOWN, dict.fromkeys(pairs, UNKNOWN)
    points = [Point(each.taken_at, each.batches) for each in samples]
    by_pair = points_by_pair(samples, pairs)
    # A look that told not all of its pairs says nothing of a pair: then it is not judged.
    end = points[-1].at if points else None
    return judge_trend(points, window=limits.window, least=limits.least), {
        pair: judge_trend(found, window=limits.window, least=limits.least)
        if found and found[-1].at == end
        else UNKNOWN
        for pair, found in by_pair.items()
    }


def backlog_of(
    db: Session,
    store: Store,
    limits: Limits,
    *,
    node: str | None = None,
    channel: str | None = None,
    since: datetime | None = None,
    now: datetime,
) -> BacklogRead:
    """All that the looks say of a store.

    Args:
        node, channel: only of these.
        since: from when on looks are listed; None: of the last day.
    """
    look = look_of(db, store)
    found = None if look is None or look.found is None else LookKept.model_validate(look.found)
    from_ = LOOKED_BACK + limits.window
    samples = [] if look is None else fine_samples(db, store.id, since=look.at - from_)
    asked = (
        []
        if found is None
        else [each for each in found.pairs if is_asked(each.node, each.channel, node, channel)]
    )
    listed = [] if look is None else all_samples(db, store.id, since=since or now - LOOKED_BACK, now=now)
    trend, holders, pairs = _told(samples, limits, look, found, asked, node=node, channel=channel)
    is_all = node is None and channel is None
    sums = found if found is not None and is_all else None
    return BacklogRead(
        store=store.id,
        status=_status(look, found, trend, holders, now=now),
        checked_at=None if look is None else look.at,
        as_of=None if look is None else look.as_of,
        problem=None if look is None else look.problem,
        interval=limits.interval,
        retention=None if found is None else timedelta(minutes=found.retention_minutes),
        batches=sums.batches if sums else sum(each.batches for each in asked),
        errors=sums.errors if sums else sum(each.errors for each in asked),
        rows=sums.rows if sums else sum(each.rows for each in asked),
        is_at_least=found is not None
        and (found.is_at_least or (not is_all and found.pairs_total > len(found.pairs))),
        trend=trend,
        holders=holders,
        pairs=pairs,
        pairs_total=0 if found is None else found.pairs_total if is_all else len(asked),
        samples=[_sample(each, node=node, channel=channel) for each in listed],
    )


def _told(
    samples: Sequence[BacklogSample],
    limits: Limits,
    look: BacklogLook | None,
    found: LookKept | None,
    asked: Sequence[PairKept],
    *,
    node: str | None,
    channel: str | None,
) -> tuple[BacklogTrendRead, list[BacklogHolderRead], list[BacklogPairRead]]:
    whole, by_pair = judged(samples, limits, [(each.node, each.channel) for each in asked])
    is_all = node is None and channel is None
    sums = [(each.taken_at, sums_of(each, node=node, channel=channel)) for each in samples]
    told = [(at, sum_) for at, sum_ in sums if sum_ is not None]
    batches = [Point(at, sum_["batches"]) for at, sum_ in told]
    capped = is_capped(samples)
    one = UNKNOWN if capped else judge_trend(batches, window=limits.window, least=limits.least)
    trend = whole if is_all else one
    rows = judge_trend(
        [Point(at, sum_["rows"]) for at, sum_ in told], window=limits.window, least=limits.least
    )
    grows = any(each.is_growing for each in (trend, *by_pair.values()))
    if capped and look is not None and is_all:
        grows = look.grows_since is not None  # a growth goes on until its figures are whole again
    read = BacklogTrendRead(
        window=limits.window,
        looks=trend.looks,
        batches_per_hour=trend.per_hour,
        rows_per_hour=rows.per_hour,
        is_growing=True if grows else trend.is_growing,
        rise=trend.rise,
        since=None if look is None or not grows else look.grows_since,
    )
    if look is None or found is None or look.as_of is None:
        return read, [], []
    stuck = {pair: is_stuck(samples, pair, window=limits.window) for pair in by_pair}
    holders = holders_of(found, asked, as_of=look.as_of, silent=limits.silent, stuck=stuck)
    return read, holders, [_pair(each, by_pair[each.node, each.channel]) for each in asked]


def is_stuck(samples: Sequence[BacklogSample], pair: Pair, *, window: timedelta) -> bool:
    """Whether the oldest batch of a pair was the same at each look of the whole window."""
    if not samples or samples[0].taken_at > samples[-1].taken_at - window:
        return False
    inside = [each for each in samples if each.taken_at >= samples[-1].taken_at - window]
    seen = {
        next((each["oldest_batch"] for each in one.pairs if (each["node"], each["channel"]) == pair), None)
        for one in inside
    }
    return len(seen) == 1 and None not in seen


def _pair(pair: PairKept, trend: Trend) -> BacklogPairRead:
    return BacklogPairRead(
        node=pair.node,
        channel=pair.channel,
        batches=pair.batches,
        errors=pair.errors,
        rows=pair.rows,
        oldest_batch=pair.oldest_batch,
        oldest_at=pair.oldest_at,
        batches_per_hour=trend.per_hour,
        is_growing=trend.is_growing,
    )


def _sample(sample: BacklogSample, *, node: str | None, channel: str | None) -> BacklogSampleRead:
    sums = sums_of(sample, node=node, channel=channel) or {}
    return BacklogSampleRead(
        at=sample.taken_at,
        batches=sums.get("batches"),
        errors=sums.get("errors"),
        rows=sums.get("rows"),
        is_at_least=sample.is_at_least,
    )


def is_late(look: BacklogLook, *, now: datetime) -> bool:
    """Whether the last look says nothing any more."""
    return now > look.at + 2 * timedelta(seconds=look.interval_s) + LATE


def _status(
    look: BacklogLook | None,
    found: LookKept | None,
    trend: BacklogTrendRead,
    holders: Sequence[BacklogHolderRead],
    *,
    now: datetime,
) -> BacklogStatus:
    if look is None or found is None or look.problem is not None:
        return BacklogStatus.UNKNOWN
    if is_late(look, now=now):
        return BacklogStatus.UNKNOWN
    is_held = any(each.holds_purge for each in holders)
    if trend.is_growing and is_held:
        return BacklogStatus.CRITICAL
    return BacklogStatus.WARNING if trend.is_growing or is_held else BacklogStatus.OK
