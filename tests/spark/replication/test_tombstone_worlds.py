"""Replicas that purge tombstones under anything that may happen: nothing comes back; and the tests bite."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.spark.replication.tombstone_rules import PATCHES, NaiveRule
from tests.spark.replication.tombstone_world import run_meeting, run_tombstone_trial
from tests.spark.replication.wire_model_site import Violation

MEETINGS = 8
TRIALS = 8
TRIALS_LONG = 1_000
BITES_WITHIN = 40
"""Seeds that a naive rule may take until it breaks a promise."""
LATE = frozenset({NaiveRule.NO_BOUND, NaiveRule.BOUND_NOT_MINDED})
"""Seen only where a replica comes that nobody knew."""


def _meetings(seeds: range, *, late: bool) -> Counter[str]:
    happened: Counter[str] = Counter()
    for seed in seeds:
        happened += run_meeting(seed, late=late).happened
    return happened


def test_who_knows_all_its_peers_refuses_nothing_and_nothing_comes_back() -> None:
    happened = _meetings(range(MEETINGS), late=False)
    assert happened["PURGED"] > MEETINGS
    assert not happened["REFUSED"]


def test_a_replica_that_comes_too_late_brings_nothing_back() -> None:
    happened = _meetings(range(MEETINGS), late=True)
    assert happened["PURGED"] > MEETINGS
    assert happened["REFUSED"], "no trial had a change from below the bound"


def test_nothing_comes_back_beside_copies_backups_clocks_and_deaths() -> None:
    happened: Counter[str] = Counter()
    for seed in range(TRIALS):
        happened += run_tombstone_trial(seed).happened
    assert happened["PURGED"], "no trial has purged anything"


@pytest.mark.long
@pytest.mark.parametrize("share", range(20))
def test_many_trials_bring_nothing_back(share: int) -> None:
    size = TRIALS_LONG // 20
    for seed in range(TRIALS + share * size, TRIALS + (share + 1) * size):
        run_tombstone_trial(seed)
        run_meeting(seed, late=bool(seed % 2))


@pytest.mark.parametrize("naive", NaiveRule)
def test_a_naive_rule_breaks_a_promise(naive: NaiveRule) -> None:
    with PATCHES[naive]():
        for seed in range(BITES_WITHIN):
            try:
                run_meeting(seed, late=naive in LATE)
            except Violation:
                return
    pytest.fail(f"{naive.value}: the model does not bite")
