"""A whole cluster, by what its nodes say: each fault once; who is behind is told from who is not heard."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from spark.events.health.ages import words
from spark.events.health.judge import judge_cluster, judge_node
from spark.events.health.records import NodeReading, Pair, Severity, Thresholds, worst
from tests.spark.events.catalogs import Catalogs, Templates
from tests.spark.events.health.catalogs_now import look

LIMITS = Thresholds()
ALL = dict.fromkeys((1, 2, 3), LIMITS)
Readings = dict[int, NodeReading]


@pytest.fixture(scope="module")
def down(slony_templates: Templates) -> Readings:
    """The cluster whose node 3 had just been stopped, looked at 40 minutes later."""
    return _readings(slony_templates, "fxa", after=timedelta(minutes=40))


@pytest.fixture(scope="module")
def well(slony_templates: Templates) -> Readings:
    """The same when node 3 had come back and caught up."""
    return _readings(slony_templates, "fxc", after=timedelta(seconds=5))


def _readings(templates: Templates, state: str, *, after: timedelta) -> Readings:
    catalogs = Catalogs(templates)
    try:
        found = {node: look(catalogs.load(state, node)) for node in (1, 2, 3)}  # type: ignore[arg-type]
    finally:
        catalogs.drop()
    at = max(each.newest_at for one in found.values() for each in one.origins if each.newest_at) + after
    return {node: replace(one, now=at, has_own_slon=True) for node, one in found.items()}


def alive(readings: Readings) -> Readings:
    """Nodes 1 and 2 as if they had gone on making events and confirming each other's."""
    found = {}
    for node, reading in readings.items():
        made = tuple(
            replace(each, newest_at=reading.now, sync_at=reading.now) if each.origin != 3 else each
            for each in reading.origins
        )
        pairs = tuple(
            replace(pair, waiting_since=None, confirmed_at=reading.now)
            if 3 not in (pair.origin, pair.receiver)
            else pair
            for pair in reading.pairs
        )
        found[node] = replace(reading, origins=made, pairs=pairs) if node != 3 else reading
    return found


def test_a_cluster_that_has_caught_up_is_well(well: Readings) -> None:
    assert judge_cluster(well, ALL) == []


def test_a_node_that_is_down_is_named_by_those_that_wait_for_it(down: Readings) -> None:
    readings = {node: one for node, one in alive(down).items() if node != 3}
    found = {(each.finding.code, each.finding.node): each for each in judge_cluster(readings, ALL)}
    assert found.keys() == {("RECEIVER_LAGS", 3), ("EVENTS_STALE", 3)}
    behind = found["RECEIVER_LAGS", 3]
    assert (behind.finding.severity, behind.seen_by) == (Severity.CRITICAL, (1, 2))
    assert "40 min: it holds back their cleanup" in behind.finding.detail
    assert found["EVENTS_STALE", 3].seen_by == (1, 2)
    assert found["EVENTS_STALE", 3].finding.severity is Severity.WARNING  # it is no set's origin


@pytest.mark.parametrize("off", ["lag_warning", "lag_critical"])
def test_the_node_that_is_down_tells_the_same_of_itself(down: Readings, off: str) -> None:
    """Its database answers: it has not what the others made, so it is behind, and not just unheard."""
    readings = alive(down) | {3: replace(down[3], has_own_slon=False)}
    limits = dict.fromkeys((1, 2, 3), replace(LIMITS, **{off: timedelta()}))
    found = {(each.finding.code, each.finding.node) for each in judge_cluster(readings, limits)}
    assert {("RECEIVER_LAGS", 3), ("NO_OWN_SLON", 3), ("SYNC_OVERDUE", 3), ("EVENTS_STALE", 3)} <= found


def test_confirmations_that_do_not_come_back_are_told_from_a_receiver_that_is_behind(well: Readings) -> None:
    """Node 3 has processed all of node 1, and node 1 knows nothing of it for half an hour."""
    one = well[1]
    since = one.now - timedelta(minutes=31)
    lost = tuple(
        Pair(pair.origin, 3, 5_000_000_001, since, since) if (pair.origin, pair.receiver) == (1, 3) else pair
        for pair in one.pairs
    )
    deaf = replace(one, pairs=lost)
    [alone] = judge_node(deaf, LIMITS)
    assert (alone.code, alone.severity, alone.node) == ("RECEIVER_LAGS", Severity.CRITICAL, 3)
    [told] = judge_cluster(well | {1: deaf}, ALL)
    assert (told.finding.code, told.finding.severity, told.finding.node) == (
        "CONFIRMATIONS_STALE",
        Severity.WARNING,
        3,
    )
    [unsure] = judge_cluster({1: deaf}, ALL)  # nobody has asked node 3
    assert unsure.finding.code == "RECEIVER_LAGS"


def test_a_node_without_others_has_nobody_to_wait_for(catalogs: Catalogs) -> None:
    loaded = catalogs.empty()
    loaded.execute("insert into sl_node values (1, true, 'alone', false)")
    assert judge_node(replace(look(loaded), has_own_slon=True), LIMITS) == []


@pytest.mark.parametrize(
    ("severities", "expected"),
    [
        ([], "OK"),
        (["UNKNOWN"], "UNKNOWN"),
        (["UNKNOWN", "WARNING"], "WARNING"),
        (["WARNING", "CRITICAL", "UNKNOWN"], "CRITICAL"),
    ],
)
def test_the_worst_counts(severities: list[str], expected: str) -> None:
    assert worst([Severity(each) for each in severities]).value == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h 0 min"), (190_000, "2 d 4 h"), (-5, "0 s")],
)
def test_ages_are_told_in_few_words(seconds: int, expected: str) -> None:
    assert words(timedelta(seconds=seconds)) == expected
