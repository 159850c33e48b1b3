"""Twenty minutes of everything at once on a real cluster whose slons clean too: all nodes end equal."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.conftest import need_slony
from tests.journeys.slony_ground import Ground, slony_ground
from tests.journeys.slony_mix import Mix
from tests.slony_cluster import slony_cluster

pytestmark = [pytest.mark.journey, pytest.mark.slony]

DURATION_S = float(os.environ.get("LETHE_TEST_SLONY_MIX_S", "1200"))
ROUND_S = 60.0
SLON_SETTINGS = {"cleanup_interval": "'15 seconds'", "vac_frequency": "2"}


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """A cluster whose slons clean each 15 s."""
    need_slony()
    with slony_cluster(slon_settings=SLON_SETTINGS) as cluster, slony_ground(cluster, tmp_path) as ground:
        yield ground


@pytest.mark.long
@pytest.mark.timeout(DURATION_S + 900)
def test_everything_at_once_for_long_leaves_all_nodes_equal(ground: Ground) -> None:
    seed = int(os.environ.get("LETHE_TEST_SEED", "1"))
    mix = Mix(ground, Random(seed))
    ends = time.monotonic() + DURATION_S
    rounds = 0
    while time.monotonic() < ends:
        with ground.cluster.load(seed=seed + rounds) as load:
            load.await_committed(20)
            mix.run(min(ends, time.monotonic() + ROUND_S))
        ground.assert_healthy()
        rounds += 1
        print(f"round {rounds}: {dict(mix.done)}")
    assert {"clean", "switch", "crash_service", "kill_slon"} <= set(mix.done)
