"""Looks over time: kept in pieces of two lengths at once, so that they are few whatever happens.

Rules:
- the last look of a piece stands for it; nothing is rolled up later;
- what a target told before the store was led to another one is forgotten with the first look at that.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col, or_, select

from app.figures.series import piece_of
from app.purge.backlog.rows import BacklogSample
from app.purge.backlog.trend import LOOKED_BACK, Point

FINE_S: Final = 300
COARSE_S: Final = 21_600
KEPT: Final[Mapping[int, timedelta]] = {
    FINE_S: 2 * LOOKED_BACK + timedelta(hours=2),
    COARSE_S: timedelta(days=31),
}
"""The longest window and the day before it, and a month."""
Pair = tuple[str, str]


def keep_sample(db: Session, store: str, values: Mapping[str, Any], *, at: datetime) -> None:
    """Keep a look in its piece of each length.

    Args:
        values: batches, errors, rows, is_at_least, pairs, pairs_total.
    """
    insert: Any = sqlite.insert if db.get_bind().dialect.name == "sqlite" else postgresql.insert
    rows = [
        {"store": store, "step_s": step_s, "at": piece_of(at, step_s), "taken_at": at} | dict(values)
        for step_s in sorted(KEPT)
    ]
    statement = insert(BacklogSample).values(rows)
    new = {name: statement.excluded[name] for name in ("taken_at", *values)}
    db.execute(statement.on_conflict_do_update(index_elements=["store", "step_s", "at"], set_=new))


def drop_samples(db: Session, store: str) -> None:
    """Forget all looks at a store."""
    db.execute(delete(BacklogSample).where(col(BacklogSample.store) == store))


def forget_samples(db: Session, *, now: datetime) -> int:
    """Remove what is older than is kept; returns how many pieces went."""
    gone = 0
    for step_s, kept in KEPT.items():
        old = (col(BacklogSample.step_s) == step_s, col(BacklogSample.at) < now - kept)
        gone += len(db.execute(delete(BacklogSample).where(*old).returning(col(BacklogSample.at))).all())
    return gone


def fine_samples(db: Session, store: str, *, since: datetime) -> list[BacklogSample]:
    """The looks from an instant on that the trend is judged by, the oldest first."""
    return _samples(db, store, col(BacklogSample.step_s) == FINE_S, col(BacklogSample.taken_at) >= since)


def all_samples(db: Session, store: str, *, since: datetime, now: datetime) -> list[BacklogSample]:
    """The looks from an instant on: coarse ones where the fine ones are not kept any more."""
    border = now - KEPT[FINE_S]
    by_age = or_(
        (col(BacklogSample.step_s) == FINE_S) & (col(BacklogSample.taken_at) >= border),
        (col(BacklogSample.step_s) == COARSE_S) & (col(BacklogSample.taken_at) < border),
    )
    return _samples(db, store, by_age, col(BacklogSample.taken_at) >= since)


def _samples(db: Session, store: str, *conditions: Any) -> list[BacklogSample]:
    query = select(BacklogSample).where(BacklogSample.store == store, *conditions)
    return list(db.exec(query.order_by(col(BacklogSample.taken_at))).all())


def sums_of(sample: BacklogSample, *, node: str | None, channel: str | None) -> Mapping[str, int] | None:
    """Batches, errors and rows of what is asked for; None: the look told not all of its pairs."""
    names = ("batches", "errors", "rows")
    if node is None and channel is None:
        return {name: getattr(sample, name) for name in names}
    if sample.pairs_total > len(sample.pairs):
        return None
    told = [each for each in sample.pairs if is_asked(each["node"], each["channel"], node, channel)]
    return {name: sum(int(each[name]) for each in told) for name in names}


def is_asked(of_node: str, of_channel: str, node: str | None, channel: str | None) -> bool:
    """Whether a pair is among those that were asked for; None: any."""
    return node in (None, of_node) and channel in (None, of_channel)


def points_by_pair(samples: Sequence[BacklogSample], pairs: Collection[Pair]) -> dict[Pair, list[Point]]:
    """The batches of each pair over time; a look that told not all pairs says nothing of those left out."""
    found: dict[Pair, list[Point]] = {pair: [] for pair in pairs}
    for sample in samples:
        told = {(each["node"], each["channel"]): int(each["batches"]) for each in sample.pairs}
        is_whole = sample.pairs_total == len(sample.pairs)
        for pair, points in found.items():
            value = told.get(pair, 0 if is_whole else None)
            if value is not None:
                points.append(Point(sample.taken_at, value))
    return found
