"""Who watches a cluster as a monitor does, and whose replica a feed fills meanwhile."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx

from spark.targets.connection import Target
from tests.forge import run_lethe
from tests.journeys.replicas import register
from tests.journeys.service import LETHE, environment, succeeded
from tests.journeys.slony_ground import Ground, store
from tests.replica_feed import agrees
from tests.slony_feed import odd_work

REPLICA = "warehouse"
RATES = (1.0, 4.0, 12.0)
"""Transactions a second: one of them for each round."""
LOOKS_MIN = 4
"""However slow the machine is."""


@dataclass
class Monitor:
    """The command as a monitor runs it, `:check` of each node, and the gauges.

    Attributes:
        looks: how often all of them were asked.
        alarms: what they said beside "all is well", with the seconds since the begin.
    """

    ground: Ground
    looks: int = 0
    alarms: list[str] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    def look(self) -> list[str]:
        """Ask all of them once; what they say."""
        said = [*self._command(), *self._checks(), *self._gauges()]
        self.looks += 1
        at = time.monotonic() - self._began
        self.alarms += [f"{at:.0f} s: {each}" for each in said]
        for each in said:
            print(f"{at:.0f} s: {each}", flush=True)
        return said

    def _command(self) -> list[str]:
        service = self.ground.service
        asked = ["slony", "health", "--cluster", self.ground.cluster.name]
        access = ["--url", service.url, "--data-dir", service.data_dir]
        done = run_lethe([LETHE, *asked, *access], env=environment({}))
        first, *more = done.stdout.splitlines() or [done.stderr]
        if done.returncode == 0:
            assert first.startswith("SLONY OK - "), done.stdout
            assert more == [], done.stdout
            return []
        return [f"exit {done.returncode}: {line}" for line in (more or [first])]

    def _checks(self) -> list[str]:
        stores = self.ground.client.stores
        found = {node: stores.check(store(node)).findings for node in self.ground.cluster.nodes}
        return [
            f"check of node {node}: {each.raw}"
            for node, findings in found.items()
            for each in findings
            if each.severity != "INFO"
        ]

    def _gauges(self) -> list[str]:
        service = self.ground.service
        headers = {"Authorization": f"Bearer {service.token}"}
        text = httpx.get(f"{service.url}/metrics", headers=headers, timeout=30).raise_for_status().text
        lines = [line for line in text.splitlines() if line.startswith("lethe_slony_")]
        states = [line for line in lines if line.startswith("lethe_slony_health{")]
        assert len(states) == len(self.ground.cluster.nodes), lines
        unwell = [line for line in states if not line.endswith(" 0.0")]
        return unwell + [line for line in lines if line.startswith("lethe_slony_finding{")]


@dataclass
class Healthy:
    """A time in which nothing is wrong: random work, a monitor, and a feed."""

    ground: Ground
    place: Target
    rng: Random
    monitor: Monitor
    syncs: int = 0

    @classmethod
    def of(cls, ground: Ground, directory: Path, *, seed: int) -> Healthy:
        """With a new replica on a file."""
        url = f"sqlite:///{directory}/{REPLICA}.db"
        register(ground.service, REPLICA, url, 4)
        place = Target(url, table_prefix="replica_")
        return cls(ground, place, Random(seed), Monitor(ground))

    def feed(self) -> None:
        """Bring the replica up to the newest SYNC of now."""
        job = self.ground.client.slony_changes.feed(REPLICA, store(1))
        self.syncs += int(succeeded(self.ground.client, job.id)["syncs"])

    def run(self, duration_s: float, *, round_s: float, ask_s: float) -> None:
        """Work, ask and feed for so long; each round has a rate of its own, and odd work."""
        self.feed()
        ends = time.monotonic() + duration_s
        while (now := time.monotonic()) < ends or self.monitor.looks < LOOKS_MIN:
            until = min(max(ends, now + ask_s), now + round_s)
            rate, seed = self.rng.choice(RATES), self.rng.randrange(1_000)
            with self.ground.cluster.load(per_s=rate, seed=seed):
                self._round(until, ask_s)
            print(f"{self.monitor.looks} looks, {self.syncs} SYNCs fed", flush=True)

    def _round(self, until: float, ask_s: float) -> None:
        odd_at = self.rng.uniform(time.monotonic(), until)
        while (now := time.monotonic()) < until:
            if now >= odd_at:
                odd_work(self.ground.cluster, self.rng)
                odd_at = until
            self.monitor.look()
            self.feed()
            time.sleep(max(0.0, min(until, now + ask_s) - time.monotonic()))

    def assert_equal(self) -> None:
        """The replica holds what the origin and each subscriber hold, now that nobody works."""
        cluster = self.ground.cluster
        cluster.catch_up()
        self.feed()
        assert cluster.differing() == []
        for node in cluster.nodes:
            agrees(self.place, cluster, node=node)
