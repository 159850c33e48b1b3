"""Replication under anything that may happen: nothing lost, nothing twice, an end; and the test bites."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.spark.replication.wire_model import run_trial
from tests.spark.replication.wire_model_site import Violation
from tests.spark.replication.wire_model_variants import SETTINGS, Naive

SEEDS = 60
SEEDS_LONG = 50_000
BITES_WITHIN = 80
"""Seeds that a naive variant may take until it breaks a promise."""
REACHED = (
    "ANSWERED",
    "UNANSWERED",
    "BATCH",
    "LOST_REQUEST",
    "LOST_REPLY",
    "TWICE",
    "GHOST",
    "FAULT",
    "TRIMMED",
    "EXPIRED",
    "RESTART",
    "DIED",
    "PUT_BACK",
    "RESTORED",
    "RECOVERED",
    "BUSY:",
    "NEEDS_TOTAL:",
    "CONSUMER_AHEAD:",
    "SUPPLIER_RESTORED:",
    "SUPPLIER_INITIALIZING:",
)
"""What the trials must go through, or they prove nothing about it."""


def _run(seeds: range) -> Counter[str]:
    happened: Counter[str] = Counter()
    for seed in seeds:
        happened += run_trial(seed).happened
    return happened


def test_nothing_is_lost_or_applied_twice_and_every_session_ends() -> None:
    happened = _run(range(SEEDS))
    assert [what for what in REACHED if not happened[what]] == []


@pytest.mark.long
@pytest.mark.parametrize("share", range(100))
def test_many_interleavings_lose_nothing(share: int) -> None:
    size = (SEEDS_LONG - SEEDS) // 100
    _run(range(SEEDS + share * size, SEEDS + (share + 1) * size))


@pytest.mark.parametrize("naive", SETTINGS)
def test_a_naive_rule_breaks_a_promise(naive: Naive) -> None:
    setting = SETTINGS[naive]
    with setting.applied() as rules:
        for seed in setting.seeds or range(BITES_WITHIN):
            try:
                run_trial(seed, profile=setting.profile, rules=rules)
            except Violation:
                return
    pytest.fail(f"{naive.value}: the model does not bite")


@pytest.mark.parametrize("naive", SETTINGS)
def test_the_real_rules_keep_every_promise_where_the_naive_ones_break_it(naive: Naive) -> None:
    setting = SETTINGS[naive]
    for seed in setting.seeds or range(5):
        run_trial(seed, profile=setting.profile)


def test_a_trial_is_decided_by_its_seed() -> None:
    def told() -> list[str]:
        return [line.split(" expires_at")[0].split("expires_at")[0] for line in run_trial(7).trail]

    assert told() == told()
