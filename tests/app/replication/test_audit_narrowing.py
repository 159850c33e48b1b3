"""Narrowing a difference: every row that differs lies in a leaf, and leaves are as small as they can be."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import pytest

from app.replication.audits.models import SideRead
from app.replication.audits.narrowing import Budget, Compared, Piece, narrow
from app.replication.audits.sides import together

LAST = 200
Side = Mapping[int, str]


def _read(side: Side, low: int, high: int) -> SideRead:
    inside = sorted((place, value) for place, value in side.items() if low < place <= high)
    return SideRead(count=len(inside), checksum=repr(inside))


def _narrowed(ours: Side, theirs: Side, budget: Budget) -> list[Piece[int]]:
    def compare(low: int, high: int) -> Compared:
        return Compared(supplier=_read(ours, low, high), consumer=_read(theirs, low, high))

    def middle(low: int, high: int, rows: int) -> int:
        return sorted(place for place in ours if low < place <= high)[rows - 1]

    whole = Piece(0, LAST, compare(0, LAST))
    return narrow(whole, compare=compare, middle=middle, budget=budget)


@pytest.mark.parametrize("seed", range(60))
def test_leaves_hold_every_difference_and_nothing_wide(seed: int) -> None:
    rng = random.Random(seed)
    places = rng.sample(range(1, LAST + 1), rng.randint(0, LAST))
    ours = {place: "a" for place in places if rng.random() < 0.97}
    theirs = {place: "a" if rng.random() < 0.97 else "b" for place in places if rng.random() < 0.97}
    differing = {place for place in {*ours, *theirs} if ours.get(place) != theirs.get(place)}
    if not differing:
        return
    leaves = _narrowed(ours, theirs, Budget())
    bounds = [(leaf.low, leaf.high) for leaf in leaves]
    assert bounds == sorted(bounds)
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(bounds))
    assert all(leaf.found.supplier.count <= 1 and not leaf.found.agrees for leaf in leaves)
    assert all(any(low < place <= high for low, high in bounds) for place in differing)


def test_a_budget_ends_the_search_with_what_was_found() -> None:
    ours = dict.fromkeys(range(1, LAST + 1), "a")
    theirs = dict.fromkeys(ours, "b")
    budget = Budget(differences=7)
    assert [leaf.high for leaf in _narrowed(ours, theirs, budget)] == list(range(1, 8))
    assert budget.is_spent
    budget = Budget(comparisons=10)
    _narrowed(ours, theirs, budget)
    assert budget.is_spent


def test_pieces_together_differ_where_one_of_them_does() -> None:
    one, other = SideRead(count=1, checksum="aa"), SideRead(count=2, checksum="bb")
    assert together([one]) == one
    assert together([one, other]).count == 3
    assert together([one, other]) != together([other, one])
    assert together([one, one]) != together([one, other])
