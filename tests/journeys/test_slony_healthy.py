"""No alarm in a healthy hour: a real cluster under random work, asked for its health every few seconds."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.cli.main import main
from tests.conftest import need_slony
from tests.journeys.slony_ground import Ground, slony_ground, store
from tests.slony_cluster import slony_cluster

pytestmark = [pytest.mark.journey, pytest.mark.slony, pytest.mark.long]

HEALTHY_S = float(os.environ.get("LETHE_HEALTHY_S", "3600"))
ASK_EACH_S = 5.0
ROUND_S = 20.0
RATES = (0.0, 5.0, 40.0, 120.0)
"""Transactions a second, of a round; 0: nobody writes."""
SLON_SETTINGS = {"cleanup_interval": "'30 seconds'", "vac_frequency": "2"}
OF_HEALTH = frozenset(
    {"NO_OWN_SLON", "RECEIVER_LAGS", "NEVER_CONFIRMED", "CONFIRMATIONS_STALE", "EVENTS_STALE"}
    | {"SYNC_OVERDUE", "LOG_TABLE_LARGE", "LISTEN_MISSING", "PATH_MISSING", "TRANSACTION_OLD"}
    | {"COMPONENT_SILENT", "NODE_FORGOTTEN", "NODE_INACTIVE", "DDL_PENDING", "SUBSCRIPTION_INACTIVE"}
    | {"LOG_SWITCH_STUCK", "LOG_STATUS_WRONG", "NODE_AWAY", "NODE_NOT_ASKED", "NODE_WITHOUT_STORE"}
    | {"HEALTH_UNREAD", "NODE_COPIED"}
)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """A cluster whose slons clean each 30 s."""
    need_slony()
    with slony_cluster(slon_settings=SLON_SETTINGS) as cluster, slony_ground(cluster, tmp_path) as ground:
        yield ground


class Asked:
    """What was asked, and each answer that was not OK."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.times = 0
        self.false: list[Any] = []

    def by_command(self) -> None:
        """`lethe slony health`, as a monitor runs it."""
        name = self._ground.cluster.name
        code = main(["slony", "health", "--cluster", name])
        self.times += 1
        if code:
            health = self._ground.client.slony.cluster_health(name)
            self.false.append((code, [each.raw for each in health.findings]))

    def by_checks(self) -> None:
        """`:check` of every node."""
        for node in self._ground.cluster.nodes:
            check = self._ground.client.stores.check(store(node))
            found = [each for each in check.raw["findings"] if each["code"] in OF_HEALTH]
            self.times += 1
            if found:
                self.false.append((node, found))


def also(ground: Ground, random: Random) -> str:
    """What an operator does meanwhile; a round has one of them."""
    node = random.choice(ground.cluster.nodes)
    act = random.choice(["clean", "switch", "sync", "wait", "nothing"])
    if act == "clean":
        ground.ended(ground.clean(node, overlap="QUEUE"))
    elif act == "switch":
        ground.ended(ground.switch(node, "FULL", timeout="PT5S"))
    elif act == "sync":
        ground.ended(ground.client.slony.sync_if_older(store(node), interval="PT5S"))
    elif act == "wait":
        ground.ended(ground.wait_for(origin=1, confirmed="ALL", timeout="PT20S"))
    return act


@pytest.mark.timeout(HEALTHY_S + 900)
def test_no_alarm_in_a_healthy_hour_under_load(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_URL", ground.service.url)
    monkeypatch.setenv("LETHE_TOKEN", ground.service.token)
    random = Random(int(os.environ.get("LETHE_TEST_SEED", "1")))
    asked, done = Asked(ground), Counter[str]()
    ends = time.monotonic() + HEALTHY_S
    seed = 0
    while time.monotonic() < ends:
        seed += 1
        rate = random.choice(RATES)
        with ground.cluster.load(per_s=rate or 0.2, seed=seed):
            until = min(ends, time.monotonic() + ROUND_S)
            while time.monotonic() < until:
                asked.by_command()
                time.sleep(min(ASK_EACH_S, max(0.0, until - time.monotonic())))
            asked.by_checks()
            done[also(ground, random)] += 1
    ground.assert_healthy()
    print(f"asked {asked.times} times in {HEALTHY_S:.0f} s, beside {dict(done)}")
    assert asked.false == []
