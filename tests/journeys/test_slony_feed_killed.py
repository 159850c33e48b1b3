"""kill -9 of the service while it carries a real node's changes into a replica: nothing is lost or double.

A naive subscriber is given the same units by HTTP: the replica must hold the same rows, and its changelog as
many changes, so that a unit that came twice is seen where it changes no row. In the end the replica holds
what real subscribers hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from spark.targets.connection import Target
from tests.journeys.crashes import CRASHING
from tests.journeys.slony_carrying import Carrying
from tests.journeys.slony_ground import Ground, slony_ground
from tests.slony_cluster import SlonyCluster

pytestmark = [pytest.mark.journey, pytest.mark.slony]

KILLS_OF_COPY, KILLS_OF_UNITS = 1, 2
ROUNDS_LONG = 10
KILLS_OF_COPY_LONG, KILLS_OF_UNITS_LONG = 2, 8
"""In each round: a hundred in all."""


@pytest.fixture(scope="module")
def ground(slony: SlonyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """No test stops a slon."""
    with slony_ground(slony, tmp_path_factory.mktemp("feed-killed"), **CRASHING) as made:
        yield made


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """Where the replica will be."""
    if request.param == "sqlite":
        return Target(f"sqlite:///{tmp_path}/replica.db", table_prefix="replica_")
    return Target(request.getfixturevalue("postgresql_url"), table_prefix="replica_")


def carried(
    ground: Ground, place: Target, *, rounds: int, kills_of_copy: int, kills_of_units: int, seed: int
) -> None:
    """All of it under load, and equal contents at the end."""
    carrying = Carrying(ground, place, Random(seed))
    with ground.cluster.load(per_s=10, seed=seed):
        for _ in range(rounds):
            carrying.copy(kills=kills_of_copy)
            carrying.units(kills=kills_of_units)
            print(dict(carrying.met))
    carrying.assert_equal()


def test_kills_in_a_copy_and_between_units_lose_nothing_and_double_nothing(
    ground: Ground, place: Target
) -> None:
    carried(ground, place, rounds=1, kills_of_copy=KILLS_OF_COPY, kills_of_units=KILLS_OF_UNITS, seed=5)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_a_hundred_kills_lose_nothing_and_double_nothing(ground: Ground, place: Target) -> None:
    carried(
        ground,
        place,
        rounds=ROUNDS_LONG,
        kills_of_copy=KILLS_OF_COPY_LONG,
        kills_of_units=KILLS_OF_UNITS_LONG,
        seed=6,
    )
