"""What a destructive act would reach, judged by the store's limits before anything is removed."""

from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, Field

from app.stores.models import Store, StoreKind, StoreLimits

Bound = TypeVar("Bound", int, float)


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


class LimitsRead(BaseModel):
    """The store's limits that a plan was judged by, and which of them it exceeds."""

    max_rows: int | None = Field(description="Rows; of a JE log, entries.")
    max_fraction: float | None = Field(description="Of the rows; of a JE log, of its bytes.")
    max_bytes: int | None = Field(default=None, description="JE: bytes of the entries that would go.")
    exceeded: list[str]


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


def exceeded(limits: StoreLimits, reach: Reach, *, unit: str = "rows") -> list[str]:
    """The limits that an act exceeds, each with its numbers."""
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
