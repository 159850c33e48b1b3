"""WINDOW against brute force: every state of two replicas with up to three changes each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

from spark.formats.csn import Csn
from spark.replication.supplier.decide import Anchor, Consumer, Outcome, Strategy, Supplier, decide
from tests.oracles.replication_recordings import is_read

DEPTH = 3


@dataclass(frozen=True)
class History:
    """One replica: the changes that the supplier made, those the consumer has, those that were purged."""

    made: tuple[Csn, ...]
    consumer_has: tuple[Csn, ...]
    removed: frozenset[Csn]

    @property
    def missing(self) -> list[Csn]:
        """What the consumer lacks of the supplier's, by the changes themselves."""
        return [csn for csn in self.made if csn not in self.consumer_has]


def histories(rid: int, times: tuple[int, int, int]) -> Iterator[History]:
    """Every state of one replica: both sides hold a prefix, any changes of the supplier may be purged."""
    csns = tuple(Csn.of(time, 0, rid) for time in times)
    for made, has in product(range(DEPTH + 1), repeat=2):
        for count in range(made + 1):
            for removed in combinations(csns[:made], count):
                yield History(csns[:made], csns[:has], frozenset(removed))


def universes() -> Iterator[tuple[History, History]]:
    """Two replicas whose changes alternate."""
    return product(histories(1, (1, 3, 5)), histories(2, (2, 4, 6)))


def _sides(universe: tuple[History, ...]) -> tuple[Supplier, Consumer]:
    supplier = Supplier(
        ruv={each.made[-1].rid: each.made[-1] for each in universe if each.made},
        min={each.made[0].rid: each.made[0] for each in universe if each.made},
        purged={max(each.removed).rid: max(each.removed) for each in universe if each.removed},
    )
    has = {each.consumer_has[-1].rid: each.consumer_has[-1] for each in universe if each.consumer_has}
    return supplier, Consumer(has)


def test_window_sends_exactly_what_is_missing_or_proves_that_it_cannot() -> None:
    outcomes = dict.fromkeys(Outcome, 0)
    for universe in universes():
        supplier, consumer = _sides(universe)
        decision = decide(supplier, consumer, strategy=Strategy.WINDOW)
        outcomes[decision.outcome] += 1
        missing = [csn for each in universe for csn in each.missing]
        lost = {csn.rid for each in universe for csn in each.missing if csn in each.removed}
        changelog = [csn for each in universe for csn in each.made if csn not in each.removed]
        read = [csn for csn in changelog if csn.rid in decision.windows and csn in decision.windows[csn.rid]]
        assert set(decision.blocked_rids) == lost
        assert decision.need == tuple(sorted({csn.rid for csn in missing}))
        if lost:
            assert decision.outcome is Outcome.NEEDS_TOTAL
            assert read == []
        else:
            assert sorted(read) == sorted(missing)
            assert decision.outcome is (Outcome.SEND if missing else Outcome.UP_TO_DATE)
    assert sum(outcomes.values()) == 3_600
    assert min(outcomes.values()) > 300


def test_classic_anchor_lies_before_all_that_is_missing() -> None:
    for universe in universes():
        supplier, consumer = _sides(universe)
        decision = decide(supplier, consumer, strategy=Strategy.CLASSIC)
        if decision.outcome is not Outcome.SEND:
            continue
        assert decision.anchor is not None
        assert all(is_read(csn, decision.anchor) for each in universe for csn in each.missing)


def test_presence_of_the_one_anchor_proves_nothing_for_the_other_replicas() -> None:
    # K4, CE5, and 40 changes of a real server: the check that 389 makes would accept these universes.
    accepted = 0
    for universe in universes():
        supplier, consumer = _sides(universe)
        decision = decide(supplier, consumer, strategy=Strategy.CLASSIC)
        changelog = {csn for each in universe for csn in each.made if csn not in each.removed}
        anchor: Anchor | None = decision.anchor
        if decision.outcome is Outcome.NEEDS_TOTAL and anchor is not None and anchor.csn in changelog:
            accepted += 1
            missing = {csn for each in universe for csn in each.missing}
            assert missing - changelog, "the real server would have lost these"
    assert accepted > 100
