"""What a destructive act would reach, judged by the store's limits before anything is removed."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.stores.models import LimitsRead, StoreLimits
from app.stores.rows import Store, StoreKind


@dataclass(frozen=True, slots=True)
class Reach:
    """What an act would remove, and the whole that `max_fraction` is a share of.

    Args:
        rows: rows of a table, entries of a log.
        bytes: of their keys and values, or of the entries; None: not known.
        part, whole: in the unit that `shares` names.
    """

    rows: int
    part: int
    whole: int
    shares: str = "rows"
    bytes: int | None = None


def is_limited(store: Store) -> bool:
    """Whether a store bounds what an act may remove."""
    limits = StoreLimits.model_validate(store.limits)
    return any(bound is not None for bound in (limits.max_rows, limits.max_fraction, limits.max_bytes))


def judge(store: Store, reach: Reach) -> LimitsRead:
    """Hold an act's reach against the store's limits as they are now."""
    limits = StoreLimits.model_validate(store.limits)
    return LimitsRead(
        max_rows=limits.max_rows,
        max_fraction=limits.max_fraction,
        max_bytes=limits.max_bytes,
        exceeded=list(_exceeded(limits, reach, "entries" if store.kind == StoreKind.JE else "rows")),
    )


def _exceeded(limits: StoreLimits, reach: Reach, unit: str) -> Sequence[str]:
    found = []
    if limits.max_rows is not None and reach.rows > limits.max_rows:
        found.append(f"max_rows: {reach.rows} {unit} would go, {limits.max_rows} may")
    if limits.max_bytes is not None and reach.bytes is not None and reach.bytes > limits.max_bytes:
        found.append(f"max_bytes: {reach.bytes} bytes would go, {limits.max_bytes} may")
    if limits.max_fraction is not None and reach.whole and reach.part / reach.whole > limits.max_fraction:
        share = reach.part / reach.whole
        found.append(
            f"max_fraction: {share:.4f} of {reach.whole} {reach.shares} would go, {limits.max_fraction:g} may"
        )
    return found
