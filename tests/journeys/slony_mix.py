"""Everything at once, at random: cleanups, switches, waits, the program's own cleaners, kills of both."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from lethe_client import Job

from tests.journeys.slony_ground import Ground

MAY_FAIL_WITH = {
    "EVENT_CLEANUP": set[str](),
    "LOG_SWITCH": {"LOG_SWITCH_TIMEOUT"},
    "EVENT_WAIT": {"WAIT_TIMEOUT"},
}
"""A healthy cluster gives no other reason."""
JOBS_MAX = 8
PAUSE_S = 1.0
DOWN_MAX_S = 6.0
OPEN_MAX_S = 3.0


class Mix:
    """One thing after another, on a cluster that replicates.

    Attributes:
        done: how often each thing was done.
    """

    def __init__(self, ground: Ground, source: Random) -> None:
        self._ground = ground
        self._source = source
        self._jobs: list[Job] = []
        self.done: Counter[str] = Counter()
        self._actions: dict[Callable[[], None], int] = {
            self._clean: 10,
            self._switch: 5,
            self._wait: 3,
            self._clean_as_slon: 3,
            self._try_and_roll_back: 1,
            self._open_writer: 2,
            self._crash_service: 3,
            self._kill_slon: 2,
            self._rest_slon: 1,
        }

    def run(self, until: float) -> None:
        """Do things until an instant of time.monotonic(); then every job has ended as it may."""
        while time.monotonic() < until:
            [action] = self._source.choices(list(self._actions), list(self._actions.values()))
            action()
            self.done[action.__name__.strip("_")] += 1
            time.sleep(self._source.uniform(0, PAUSE_S))
            if len(self._jobs) >= JOBS_MAX:
                self.settle()
        self.settle()

    def settle(self) -> None:
        """Wait for the jobs so far."""
        for job in self._jobs:
            ended = self._ground.ended(job)
            code = None if ended.error is None else ended.error.code
            assert ended.state == "SUCCEEDED" or code in MAY_FAIL_WITH[ended.kind], ended.raw
            self.done[
                f"{ended.kind} {(ended.result or {}).get('classification') or code or 'SUCCEEDED'}"
            ] += 1
        self._jobs.clear()

    def _node(self) -> int:
        return self._source.choice(self._ground.cluster.nodes)

    def _clean(self) -> None:
        more: dict[str, Any] = {"via": "NATIVE"}
        if self._source.random() < 0.6:
            more = {
                "via": "BUILTIN",
                "rule": self._source.choice(("PROGRAM", "PROGRAM", "MANUAL")),
                "log_switch": self._source.choice(("AS_PROGRAM", "NONE")),
                "max_rows_in_tx": self._source.choice((1, 7, None)),
                "archive": self._source.random() < 0.3,
            }
        interval = f"PT{self._source.randrange(4)}S"
        self._jobs.append(self._ground.clean(self._node(), interval=interval, overlap="QUEUE", **more))

    def _switch(self) -> None:
        action = self._source.choice(("START", "FINISH", "FULL"))
        timeout = f"PT{self._source.randrange(10)}S"
        self._jobs.append(self._ground.switch(self._node(), action, timeout=timeout))

    def _wait(self) -> None:
        origin = self._source.choice((1, 2, 3, "ALL"))
        self._jobs.append(self._ground.wait_for(origin=origin, timeout=f"PT{self._source.randrange(1, 9)}S"))

    def _clean_as_slon(self) -> None:
        self._ground.clean_as_slon(self._node(), interval="1 second")

    def _try_and_roll_back(self) -> None:
        self._ground.clean_as_slon(self._node(), commit=False)

    def _open_writer(self) -> None:
        with self._ground.writer() as session:
            time.sleep(self._source.uniform(0, OPEN_MAX_S))
            session.commit()

    def _crash_service(self) -> None:
        self._ground.service.crash()

    def _kill_slon(self) -> None:
        slon = self._ground.cluster.slons[self._node()]
        slon.kill9()
        slon.start()

    def _rest_slon(self) -> None:
        slon = self._ground.cluster.slons[self._node()]
        slon.stop()
        time.sleep(self._source.uniform(0, DOWN_MAX_S))
        slon.start()
