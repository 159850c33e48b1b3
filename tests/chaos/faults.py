"""What goes wrong: each fault is printed as it happens, and lasts for a moment that the seed has drawn."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random

from tests.chaos.clocked import set_clock
from tests.chaos.fleet import LEASE_TTL_S, Fleet
from tests.journeys.service import Process, until

METADATA_JUMPS_S = (-95.0, -30.0, 30.0, 95.0)
"""Small: a lease that was written while the clock was ahead, by somebody who is gone, lasts as long."""
JUMPS_S = (-7_200.0, -95.0, -30.0, 30.0, 95.0, 7_200.0)
PIECE = 1 << 20
ENDS_MAX_S = 120.0


def _kill(process: Process) -> None:
    """kill -9; on a crowded machine it takes a while until its end is heard of."""
    try:
        process.kill9()
    except subprocess.TimeoutExpired:
        until(process.has_ended, timeout_s=ENDS_MAX_S)


class Faults:
    """Draws faults and makes them, one after the other; some overlap with the next."""

    def __init__(self, fleet: Fleet, rng: Random, say: Callable[[str], None]) -> None:
        self._fleet = fleet
        self._rng = rng
        self._say = say
        self._threads: list[threading.Thread] = []
        self.made: Counter[str] = Counter()
        self._kinds: list[Callable[[], None]] = [
            self._kill,
            self._kill,
            self._kill_several,
            self._freeze,
            self._freeze,
            self._restart_metadata,
            self._kill_metadata,
            self._kill_targets,
            self._fill,
            self._jump,
            self._jump_metadata,
        ]
        self._left: list[Callable[[], None]] = []
        self._turns = 0

    @property
    def had_all(self) -> bool:
        """Whether every kind has had its turn."""
        return self._turns >= len(self._kinds)

    def one(self) -> None:
        """Make the next fault: every kind has its turn before one comes again."""
        if not self._left:
            self._left = self._rng.sample(self._kinds, len(self._kinds))
        self._turns += 1
        self._left.pop()()

    def end(self) -> None:
        """Wait for what still lasts."""
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a fault does not end"

    def _tell(self, kind: str, what: str) -> None:
        self.made[kind] += 1
        self._say(f"fault: {what}")

    def _later(self, act: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=act, daemon=True))
        self._threads[-1].start()

    def _any(self) -> Process:
        return self._rng.choice(self._fleet.processes)

    # -- processes

    def _kill(self) -> None:
        self._kill_one(self._any(), self._rng.uniform(0, 3))

    def _kill_several(self) -> None:
        for process in self._rng.sample(self._fleet.processes, 3):
            self._kill_one(process, self._rng.uniform(0, 2))

    def _kill_one(self, process: Process, away_s: float) -> None:
        """The supervisor starts it again."""
        with self._fleet.guard:
            if process.has_ended():
                return
            self._tell("kill -9", f"kill -9 of {process.data_dir.name}, {away_s:.1f} s away")
            _kill(process)
            time.sleep(away_s)

    def _freeze(self) -> None:
        process, length_s = self._any(), LEASE_TTL_S + self._rng.uniform(0.5, 4)
        with self._fleet.guard:
            if process.has_ended():
                return
            pid = process.pid
            self._tell("SIGSTOP", f"SIGSTOP of {process.data_dir.name} for {length_s:.1f} s, past its lease")
            process.freeze()

        def thaw() -> None:
            time.sleep(length_s)
            with self._fleet.guard:
                if not process.has_ended() and process.pid == pid:
                    process.thaw()

        self._later(thaw)

    # -- servers

    def _restart_metadata(self) -> None:
        with self._fleet.guard:
            self._tell("metadata restart", "PostgreSQL of the metadata is restarted")
            self._fleet.metadata.restart()

    def _kill_metadata(self) -> None:
        away_s = self._rng.uniform(0, 3)
        with self._fleet.guard:
            self._tell("metadata kill -9", f"kill -9 of the metadata's PostgreSQL, {away_s:.1f} s away")
            self._fleet.metadata.kill9()
            time.sleep(away_s)
            self._fleet.metadata.start()

    def _kill_targets(self) -> None:
        away_s = self._rng.uniform(0, 2)
        with self._fleet.guard:
            self._tell("target kill -9", f"kill -9 of the targets' PostgreSQL, {away_s:.1f} s away")
            self._fleet.targets.kill9()
            time.sleep(away_s)
            self._fleet.targets.start()

    # -- place and time

    def _fill(self) -> None:
        if self._fleet.place is None:
            self._say("fault left out: the full file system (no small one could be mounted; that takes root)")
            self._kinds = [kind for kind in self._kinds if kind != self._fill]
            return
        length_s = self._rng.uniform(2, 6)
        filling = self._fleet.place / "filling"
        self._tell("full", f"the file system of data directories and archives is full for {length_s:.1f} s")
        with filling.open("wb", buffering=0) as file:
            for size in (PIECE, 4096, 1):
                try:
                    while True:
                        file.write(os.urandom(1) * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

        def free() -> None:
            time.sleep(length_s)
            filling.unlink(missing_ok=True)

        self._later(free)

    def _jump(self) -> None:
        name = self._rng.choice(sorted(self._fleet.clocks))
        ahead_s, length_s = self._rng.choice(JUMPS_S), self._rng.uniform(2, 8)
        clock = self._fleet.clocks[name]
        self._tell("clock", f"the wall clock of {name} is off by {ahead_s:+.0f} s for {length_s:.1f} s")
        set_clock(clock, ahead_s)

        def right() -> None:
            time.sleep(length_s)
            set_clock(clock, 0.0)

        self._later(right)

    def _jump_metadata(self) -> None:
        ahead_s, length_s = self._rng.choice(METADATA_JUMPS_S), self._rng.uniform(2, 8)
        clock = self._fleet.clock
        with self._fleet.guard:
            self._tell(
                "metadata clock",
                f"the clock of the metadata's server is off by {ahead_s:+.0f} s for {length_s:.1f} s",
            )
            clock.set(ahead_s)

        def right() -> None:
            time.sleep(length_s)
            with self._fleet.guard:  # no fault has the server away now
                clock.set(0.0)

        self._later(right)
