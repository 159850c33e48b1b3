"""From a piece that differs to the few rows that do: by halves, each compared on both sides.

Places are CSNs or keys of entries; a piece is what lies behind `low`, up to and with `high`. Where it is cut
is decided by the rows of this side: a piece in which it has one row or none is as narrow as it gets.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from app.replication.audits.models import DifferenceKind, SideRead

DIFFERENCES_MAX: Final = 100
COMPARISONS_MAX: Final = 2_000
Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class Compared:
    """What both sides have in one piece."""

    supplier: SideRead
    consumer: SideRead

    @property
    def agrees(self) -> bool:
        """Whether they have the same."""
        return self.supplier == self.consumer

    @property
    def kind(self) -> DifferenceKind:
        """What differs, in a piece of one row or none."""
        if self.supplier.count > self.consumer.count:
            return DifferenceKind.MISSING_AT_CONSUMER
        if self.supplier.count < self.consumer.count:
            return DifferenceKind.MISSING_AT_SUPPLIER
        return DifferenceKind.DIFFERENT


@dataclass(frozen=True, slots=True)
class Piece(Generic[Place]):
    """A piece and what both sides have in it."""

    low: Place
    high: Place
    found: Compared


@dataclass(slots=True)
class Budget:
    """What narrowing may still ask and list."""

    comparisons: int = COMPARISONS_MAX
    differences: int = DIFFERENCES_MAX

    @property
    def is_spent(self) -> bool:
        """Whether differences are left unnamed."""
        return self.comparisons <= 0 or self.differences <= 0


def narrow(
    whole: Piece[Place],
    *,
    compare: Callable[[Place, Place], Compared],
    middle: Callable[[Place, Place, int], Place],
    budget: Budget,
) -> list[Piece[Place]]:
    """The narrowest pieces that differ, in their order; as many as the budget allows.

    Args:
        compare: asks both sides about a piece.
        middle: the place of the n-th row of this side in a piece.
    """
    found: list[Piece[Place]] = []
    left = [whole]
    while left and not budget.is_spent:
        piece = left.pop()
        rows = piece.found.supplier.count
        if rows <= 1:
            found.append(piece)
            budget.differences -= 1
            continue
        cut = middle(piece.low, piece.high, rows // 2)
        halves = []
        for low, high in ((piece.low, cut), (cut, piece.high)):
            budget.comparisons -= 1
            seen = compare(low, high)
            if not seen.agrees:
                halves.append(Piece(low, high, seen))
        left += reversed(halves)
    return found
