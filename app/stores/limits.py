"""What a destructive act would reach, judged by the store's limits before anything is removed."""

from typing import TypeVar

from app.stores.models import LimitsRead, Reach, StoreKind, StoreLimits, exceeded
from app.stores.rows import Store

Bound = TypeVar("Bound", int, float)


def is_limited(limits: StoreLimits) -> bool:
    """Whether what an act may remove is bounded."""
    return any(bound is not None for bound in (limits.max_rows, limits.max_fraction, limits.max_bytes))


def judge(store: Store, reach: Reach) -> LimitsRead:
    """Hold an act's reach against the store's limits as they are now."""
    limits = StoreLimits.model_validate(store.limits)
    return LimitsRead(
        max_rows=limits.max_rows,
        max_fraction=limits.max_fraction,
        max_bytes=limits.max_bytes,
        exceeded=exceeded(limits, reach, unit="entries" if store.kind == StoreKind.JE else "rows"),
    )


def tighter(ours: StoreLimits, others: StoreLimits) -> StoreLimits:
    """The lower one of each limit."""
    return StoreLimits(
        max_rows=_lower(ours.max_rows, others.max_rows),
        max_fraction=_lower(ours.max_fraction, others.max_fraction),
        max_bytes=_lower(ours.max_bytes, others.max_bytes),
    )


def _lower(ours: Bound | None, others: Bound | None) -> Bound | None:
    return min((bound for bound in (ours, others) if bound is not None), default=None)
