"""Three services write at once, bring each other their changes in a ring, and are killed at random moments.

In the end all three hold the same, each change that was answered once, and the audits agree.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.conftest import SharedServer
from tests.journeys.ring import (
    Activity,
    Killer,
    assert_audits_agree,
    assert_converged,
    assert_sessions_did_it,
    converge,
    ring_of_three,
)
from tests.journeys.service import until

pytestmark = pytest.mark.journey
KILLS = 2
KILLS_LONG = 40
CONVERGE_S = 120.0


@pytest.fixture
def postgresql_urls(postgresql_server: SharedServer) -> Iterator[list[str]]:
    """Three new databases."""
    names = [f"lethe_ring_{uuid.uuid4().hex[:12]}" for _ in range(3)]
    for name in names:
        postgresql_server.execute(f"create database {name}")
    yield [postgresql_server.url(name) for name in names]
    for name in names:
        postgresql_server.execute(f"drop database if exists {name} with (force)")


def _sqlite_urls(directory: Path) -> list[str]:
    return [f"sqlite:///{directory}/replica-{number}.db" for number in range(3)]


def _run(directory: Path, urls: list[str], *, kills: int, seed: int) -> None:
    with ring_of_three(directory, urls) as ring:
        killer = Killer(ring, Random(seed))
        with Activity(ring, seed) as activity:
            for number in range(kills):
                killer.kill(as_supplier=number % 2 == 0)
                activity.raise_faults()
            # A service is back before the next session would have begun.
            until(lambda: activity.asked > kills, timeout_s=CONVERGE_S)
            activity.stop()
        took_s = converge(ring, timeout_s=CONVERGE_S)
        changes = sum(len(each.changes) for each in activity.written)
        print(
            f"{changes} changes, {activity.asked} sessions asked for, {activity.replayed} answers replayed,"
        )
        print(f"level {took_s:.1f} s after the last; killed: {killer.kills}")
        assert {each.rid for each in activity.written} == {1, 2, 3}
        assert activity.asked > kills
        assert_converged(ring, activity.written)
        assert_sessions_did_it(ring)
        assert_audits_agree(ring)


@pytest.mark.postgresql
def test_a_ring_of_three_converges_whoever_is_killed(tmp_path: Path, postgresql_urls: list[str]) -> None:
    _run(tmp_path, postgresql_urls, kills=KILLS, seed=5)


@pytest.mark.long
def test_a_ring_of_files_converges_whoever_is_killed(tmp_path: Path) -> None:
    _run(tmp_path, _sqlite_urls(tmp_path), kills=KILLS, seed=6)


@pytest.mark.long
@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_a_ring_of_three_outlives_many_kills(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    urls = _sqlite_urls(tmp_path) if database == "sqlite" else request.getfixturevalue("postgresql_urls")
    _run(tmp_path, urls, kills=KILLS_LONG, seed=7)
