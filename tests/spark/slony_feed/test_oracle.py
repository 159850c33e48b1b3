"""A real node and a replica that its feed fills: after each round both hold the same, value by value.

Each round has random work, runs of the feed beside it, and a SYNC at its end. Kills: a process that carries
the feed dies at a call of its replica's driver, drawn anew each time; the next run goes on.
"""

from __future__ import annotations

import json
from random import Random

import pytest

from spark.targets.connection import Target
from tests.replica_feed import (
    agrees,
    changelog_is_whole,
    cursor_at,
    entries_at,
    feed_once,
    rows_of,
    run_killed,
)
from tests.slony_cluster import SlonyCluster
from tests.slony_feed import content, odd_work

ROUNDS, ROUNDS_LONG = 2, 6
KILLS = 3
KILLS_LONG = 100
CALLS_MAX = 60


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(ROUNDS_LONG, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_random_work_leaves_both_sides_equal_after_each_round(
    request: pytest.FixtureRequest, slony: SlonyCluster, kind: str, rounds: int
) -> None:
    place: Target = request.getfixturevalue(f"{kind}_place")
    rng = Random(7)
    slony.catch_up()
    for _round in range(rounds):
        with slony.load(linger=0.2, seed=rng.randrange(100)) as load:
            for _ in range(2):
                load.await_committed(10)
                feed_once(place, slony)
                slony.sync(1)
        odd_work(slony, rng)
        newest = slony.sync(1)
        cursor = feed_once(place, slony)
        assert cursor.seqno >= newest
        agrees(place, slony)
    changelog_is_whole(place)
    assert cursor.copies == 1
    assert cursor.units > rounds


def kills(place: Target, slony: SlonyCluster, count: int, *, seed: int) -> None:
    """Runs that die, each followed by work; in between the feed comes to its end now and then."""
    rng, died = Random(seed), 0
    while died < count:
        with slony.load(seed=rng.randrange(100)) as load:
            load.await_committed(3)
        if rng.random() < 0.3:
            odd_work(slony, rng)
        slony.sync(1)
        first_copy = rng.random() < 0.2
        at = rng.randrange(1, CALLS_MAX)
        if run_killed(place, slony, at=at, after=rng.random() < 0.5, first_copy=first_copy) is not None:
            died += 1
        if rng.random() < 0.3:
            newest = slony.sync(1)
            assert feed_once(place, slony).seqno >= newest
            agrees(place, slony)
    slony.sync(1)
    feed_once(place, slony)
    agrees(place, slony)
    changelog_is_whole(place)


def test_kills_at_any_call_lose_nothing_and_double_nothing(sqlite_place: Target, slony: SlonyCluster) -> None:
    kills(sqlite_place, slony, KILLS, seed=3)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_hundred_kills(request: pytest.FixtureRequest, slony: SlonyCluster, kind: str) -> None:
    kills(request.getfixturevalue(f"{kind}_place"), slony, KILLS_LONG, seed=4)


def test_a_unit_is_labelled_and_sequences_and_scripts_are_entries(
    sqlite_place: Target, slony: SlonyCluster
) -> None:
    slony.catch_up()
    feed_once(sqlite_place, slony, prefix="shop:")
    slony.run(1, "select nextval('ticket'); insert into account values (910001, 'a', 1)")
    slony.slonik("execute script (event node = 1, sql = 'comment on table movement is ''y''');")
    slony.sync(1)
    cursor = feed_once(sqlite_place, slony, prefix="shop:")
    entries = {key.decode(): json.loads(value) for key, value in entries_at(sqlite_place).items()}
    assert all(key.startswith("shop:") for key in entries)
    assert entries["shop:public.account/910001"] == {"id": "910001", "owner": "a", "balance": "1"}
    assert set(entries["shop:!sync"]) == {"origin", "seqno", "at"}
    [(ticket,)] = slony.run(1, "select last_value from ticket")
    assert entries["shop:!sequence/public.ticket"] == {"last_value": str(ticket)}
    [script] = [value for key, value in entries.items() if key.startswith("shop:!ddl/")]
    assert script["statement"].strip() == "comment on table movement is 'y'"
    assert cursor.scripts == 1
    assert cursor.scripted is not None
    assert rows_of(entries_at(sqlite_place), prefix="shop:") == content(slony, 1)
    assert cursor == cursor_at(sqlite_place)
