"""A healthy time under load without an alarm, by the command, `:check` and the gauges; then a fault is named.

In the same time a feed fills a replica, which holds at its end what real subscribers hold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import need_slony
from tests.journeys.service import until
from tests.journeys.slony_ground import Ground, slony_ground
from tests.journeys.slony_watch import Healthy, Monitor
from tests.slony_cluster import slony_cluster

pytestmark = [pytest.mark.journey, pytest.mark.slony]

DURATION_S = float(os.environ.get("LETHE_TEST_SLONY_HEALTHY_S", "3600"))
SHORT_S = 6.0
NAMED_S = 60.0
OF_SLON: Mapping[str, str] = {
    "sync_interval": "2000",
    "sync_interval_timeout": "10000",
    "cleanup_interval": "'10 minutes'",
    "vac_frequency": "3",
}
"""Its own defaults: what it says of itself comes as seldom as at any other place."""


def names_a_stopped_slon(ground: Ground, monitor: Monitor, node: int) -> None:
    """All who are asked name it within NAMED_S, and nothing else."""
    began = time.monotonic()
    ground.cluster.slons[node].stop()
    # A look asks one after the other: the first ones may have been asked before the session was gone.
    said = until(lambda: found if len(found := monitor.look()) > 3 else None, timeout_s=NAMED_S, pause_s=1.0)
    print(f"named {time.monotonic() - began:.1f} s after its slon was stopped")
    assert time.monotonic() - began < NAMED_S
    by_command, by_check, by_state, by_finding = said
    assert by_command.startswith(f"exit 2: CRITICAL NO_OWN_SLON node {node} (seen by node-{node}): ")
    assert by_check.startswith(f"check of node {node}: ")
    assert "'code': 'NO_OWN_SLON'" in by_check
    assert by_state == f'lethe_slony_health{{store="node-{node}"}} 2.0'
    assert 'code="NO_OWN_SLON"' in by_finding
    assert f'store="node-{node}"' in by_finding


def healthy(
    directory: Path, slon: Mapping[str, str], *, duration_s: float, round_s: float, ask_s: float
) -> None:
    """No alarm for so long, equal contents at the end, and a fault that is named."""
    need_slony()
    seed = int(os.environ.get("LETHE_TEST_SEED", "1"))
    with (
        slony_cluster(slon_settings=slon, settings={"autovacuum": "on"}) as cluster,
        slony_ground(cluster, directory) as ground,
    ):
        found = Healthy.of(ground, directory, seed=seed)
        found.run(duration_s, round_s=round_s, ask_s=ask_s)
        assert found.monitor.alarms == []
        found.assert_equal()
        assert found.syncs > 0
        assert found.monitor.look() == []
        names_a_stopped_slon(ground, found.monitor, found.rng.choice(cluster.nodes))


def test_some_seconds_under_load_give_no_alarm_and_a_fault_is_named(tmp_path: Path) -> None:
    healthy(tmp_path, {}, duration_s=SHORT_S, round_s=SHORT_S / 2, ask_s=1.0)


@pytest.mark.long
@pytest.mark.timeout(DURATION_S + 900)
def test_an_hour_under_load_gives_no_alarm_and_a_fault_is_named(tmp_path: Path) -> None:
    healthy(tmp_path, OF_SLON, duration_s=DURATION_S, round_s=60.0, ask_s=10.0)
