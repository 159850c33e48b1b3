"""The storm: all works at once, one fault after the other, then calm, then the judgement."""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path
from random import Random

from tests.chaos.cleanups import Cleanups
from tests.chaos.erasures import Erasures
from tests.chaos.faults import Faults
from tests.chaos.fleet import Fleet, fleet
from tests.chaos.orders import Orders
from tests.chaos.purges import PostgresqlPurges, Purges
from tests.chaos.sessions import Sessions
from tests.chaos.tables import Tables
from tests.chaos.windows import Windows
from tests.chaos.work import Work
from tests.journeys.service import Process

WORKS: tuple[type[Work], ...] = (
    Purges,
    PostgresqlPurges,
    Tables,
    Erasures,
    Sessions,
    Cleanups,
    Orders,
    Windows,
)
PAUSE_S = (1.5, 5.0)
SETTLE_MAX_S = 300.0
EXIT_TRY_AGAIN = 75
KILLED = -9
WRONG_MAX_CHARS = 3_000
LINES_SHOWN = 40


class Storm:
    """One run.

    Args:
        seed: of all that is drawn; the moments at which it meets the processes are the machine's.
        seconds: how long faults are made; longer where not every kind of them has had its turn by then.
        pause_s: least and most seconds between two faults.
    """

    def __init__(
        self, made: Fleet, *, seed: int, seconds: float, pause_s: tuple[float, float] = PAUSE_S
    ) -> None:
        self.fleet = made
        self.seed = seed
        self.seconds = seconds
        self.pause_s = pause_s
        self._began = time.monotonic()
        self._calm = threading.Event()
        self._codes: set[int] = set()
        self.faults = Faults(made, Random(f"{seed} faults"), self.say)
        self.works = [
            work(made, made.directory / work.name, Random(f"{seed} {work.name}"), self.say) for work in WORKS
        ]

    def say(self, what: str) -> None:
        """One line, with the seconds since the beginning."""
        print(f"{time.monotonic() - self._began:7.1f} s  {what}", flush=True)

    def run(self) -> list[str]:
        """Storm, calm, judgement; returns what is wrong."""
        for work in self.works:
            work.prepare()
        supervisor = threading.Thread(target=self._supervise, daemon=True)
        supervisor.start()
        try:
            for work in self.works:
                work.start()
            self._make_faults()
            self._come_to_rest()
        finally:
            self._calm.set()
            supervisor.join(60)
            for work in self.works:
                work.close()
        return self._wrong()

    def _make_faults(self) -> None:
        rng = Random(f"{self.seed} pauses")
        until = time.monotonic() + self.seconds
        while (time.monotonic() < until or not self.faults.had_all) and not self._wrong():
            time.sleep(rng.uniform(*self.pause_s))
            self.faults.one()

    def _come_to_rest(self) -> None:
        for work in self.works:
            work.over.set()
        self.faults.end()
        self.say("calm: everything runs again, jobs come to their ends")
        self.fleet.heal()
        deadline = time.monotonic() + SETTLE_MAX_S
        for work in self.works:
            work.join(max(1.0, deadline - time.monotonic()))
        for work in self.works:
            if not self._wrong():
                work.finish_guarded()

    def _supervise(self) -> None:
        """Whoever ends is started again, as by an init system."""
        while not self._calm.wait(0.2):
            with self.fleet.guard:
                for process in self.fleet.processes:
                    if process.exit_code is not None:
                        self._codes.add(process.exit_code)
                self.fleet.revive()

    def _wrong(self) -> list[str]:
        found = [work.fault for work in self.works if work.fault is not None]
        found += [f"a process has ended with {code}" for code in self._codes - {EXIT_TRY_AGAIN, KILLED}]
        return found + [each for transport in self.fleet.transports for each in transport.broken]

    def report(self) -> None:
        """What was done."""
        self.say(f"faults: {dict(sorted(self.faults.made.items()))}")
        for work in self.works:
            self.say(f"{work.name}: {work.done} turns judged, {dict(sorted(work.counts.items()))}")


def _told(process: Process) -> str:
    """The end of a log, without the requests."""
    lines = process.log.read_text(errors="replace").splitlines()
    kept = [line for line in lines if '"event": "request"' not in line]
    return "\n".join([f"{process.data_dir.name}:", *kept[-LINES_SHOWN:]])


def storm(
    directory: Path, *, seconds: float, seed: int | None = None, pause_s: tuple[float, float] = PAUSE_S
) -> list[str]:
    """Run it in a directory; returns what is wrong. Faults, seed and how to run it again are printed."""
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    again = f'make chaos args="--seed {seed} --seconds {seconds:.0f}"'
    print(f"chaos: seed {seed}, {seconds:.0f} s; to run it again: {again}", flush=True)
    with fleet(directory) as made:
        run = Storm(made, seed=seed, seconds=seconds, pause_s=pause_s)
        wrong = run.run()
        run.report()
        for each in wrong:
            print(f"WRONG: {each[:WRONG_MAX_CHARS]}", file=sys.stderr)
        if wrong:
            for process in made.processes:
                print(_told(process), file=sys.stderr)
            print(f"to run it again: {again}", file=sys.stderr)
    return wrong
