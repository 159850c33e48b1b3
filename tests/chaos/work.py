"""One kind of work of the storm: turns in a thread of its own, each judged by an oracle."""

from __future__ import annotations

import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from lethe_client import Job, Lethe
from lethe_client.transport import Call

from tests.chaos.fleet import Fleet

JOB_MAX_S = 240.0
LOOK_S = 0.25
LABELS = {"storm": "yes"}


class Work:
    """What one thread does until the storm is over: `prepare`, `turn` after `turn`, then `finish`.

    Attributes:
        done: how many turns were made and judged.
        counts: what is worth printing.
    """

    name = "work"

    def __init__(self, fleet: Fleet, directory: Path, rng: Random, say: Callable[[str], None]) -> None:
        self.fleet = fleet
        self.directory = directory
        self.rng = rng
        self.say = say
        self.client: Lethe = fleet.client()
        self.over = threading.Event()
        self.done = 0
        self.counts: Counter[str] = Counter()
        self.fault: str | None = None
        self._thread = threading.Thread(target=self._run, name=f"chaos-{self.name}", daemon=True)
        directory.mkdir(parents=True, exist_ok=True)

    def prepare(self) -> None:
        """Before the first fault."""

    def turn(self) -> None:
        """One piece of work to its end, and its judgement."""
        raise NotImplementedError

    def finish(self) -> None:
        """When everything is whole again: what must be true in the end."""

    def close(self) -> None:
        """Give back the connections."""
        self.client.close()

    def start(self) -> None:
        """Begin with the turns."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of the last turn."""
        self._thread.join(timeout_s)
        if self._thread.is_alive() and self.fault is None:
            self.fault = f"{self.name}: a turn does not end"

    def _run(self) -> None:
        try:
            while not self.over.is_set():
                self.turn()
                self.done += 1
        except BaseException:  # noqa: BLE001 -- the storm tells it
            self.fault = f"{self.name}, turn {self.done}:\n{traceback.format_exc()}"

    def finish_guarded(self) -> None:
        """What must be true in the end; a fault of it is kept."""
        try:
            self.finish()
        except BaseException:  # noqa: BLE001 -- the storm tells it
            self.fault = f"{self.name}, at the end:\n{traceback.format_exc()}"

    # -- what turns are made of

    def post(self, path: str, body: Any) -> dict[str, Any]:
        """One POST that the client library has no method for; what it answers."""
        call = Call(method="POST", path=path, json=body, creates=True)
        found: dict[str, Any] = self.client._transport.request(call).body
        return found

    def job(self, job_id: str) -> Job:
        """A job as it stands."""
        return self.client.jobs.get(job_id)

    def ended(self, job_id: str, *, max_s: float = JOB_MAX_S) -> Job:
        """A job that has ended; it must say why it waits if it has not in time."""
        deadline = time.monotonic() + max_s
        while True:
            job = self.job(job_id)
            if job.ended:
                return job
            assert time.monotonic() < deadline, f"does not end: {job.raw}"
            time.sleep(LOOK_S)

    def succeeded(self, job_id: str) -> dict[str, Any]:
        """The result of a job that must succeed, whatever happens meanwhile."""
        job = self.ended(job_id)
        assert job.state == "SUCCEEDED", f"{job.state}: {job.raw['error']} {job.raw}"
        return dict(job.result or {})
