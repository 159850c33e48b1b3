"""Erasure cycles of JE environments, backups around them: what lives stays, what is protected stays still."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from lethe_client import Conflict, CycleRequest, Gone, ProblemError, ServiceUnavailable

from tests.chaos.work import LABELS, Work
from tests.journeys.erasure import content, live_records
from tests.regressions.environments import begin_history, write_versions

VERSIONS = (4, 12)
LEASE = "PT30S"


def digests(paths: list[Path]) -> dict[str, str]:
    """A hash of each file, as a backup tool would read it now."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


class Erasures(Work):
    """A fresh environment and a cycle in each turn, with a backup that begins somewhere on its way."""

    name = "erasures"

    def turn(self) -> None:
        """Every record that lives is there, no file has another size, a backup's copy is of one moment."""
        home = self.directory / f"env-{self.done}"
        home.mkdir()
        environment = begin_history(home)
        for number in range(self.rng.randint(*VERSIONS)):
            write_versions(environment, b"version %d of turn %d" % (number, self.done))
        environment.close()
        live, size = live_records(home), {name: len(data) for name, data in content(home).items()}
        store = f"erased-{self.done}"
        self.client.stores.create(store, str(home), kind="JE", labels=LABELS)
        duration = self.rng.choice(["PT0S", "PT6S"])
        job_id = self._cycle(store, duration)
        self._back_up(store)
        job = self.ended(job_id)
        for _ in range(
            20
        ):  # its end may have passed while nobody ran, or a backup held it up: then a fresh one
            if job.state == "SUCCEEDED" and (job.result or {}).get("state") == "COMPLETE":
                break
            assert job.state in ("SUCCEEDED", "ABORTED"), f"{job.state}: {job.raw}"
            self.counts["cycles again"] += 1
            job = self.ended(self._cycle(store, "PT0S"))
        assert (job.result or {}).get("state") == "COMPLETE", job.raw
        assert (job.result or {})["remaining"] == 0, job.raw
        files = list(self.client.erasure.files(store))
        assert {file.state for file in files[:-1]} <= {"ERASED", "CLEAN"}, files
        assert live_records(home) == live
        assert {name: len(data) for name, data in content(home).items()} == size
        self.counts["files"] += len(files)

    def _cycle(self, store: str, duration: str) -> str:
        """Begin a cycle, or find that the eraser has begun a fresh one."""
        while True:
            try:
                return self.client.erasure.begin(
                    store, CycleRequest(min_file_age="PT0S", duration=duration)
                ).id
            except Conflict as error:
                for job in self.client.jobs.list(stores=[store]):
                    if job.kind == "ERASURE" and not job.ended:
                        return job.id
                if error.code not in ("CYCLE_RUNNING", "CONFLICTING_JOB"):
                    raise
            self.over.wait(0.2)

    def _back_up(self, store: str) -> None:
        """Hash all files twice under a session that holds its 201: nobody may have touched one between."""
        self.over.wait(self.rng.random() * 2)
        try:
            session = self.client.backups.begin(store, lease=LEASE, tool="chaos")
        except ServiceUnavailable:  # whoever writes was frozen: nothing was promised
            self.counts["backups not begun"] += 1
            return
        if session.state != "ACTIVE":
            self.counts["backups not begun"] += 1
            return
        paths = [Path(file.path) for file in self.client.backups.files(store, session.id)]
        first = digests(paths)
        self.over.wait(self.rng.random() * 5)
        with contextlib.suppress(ProblemError):
            self.client.backups.renew(store, session.id, lease=LEASE)
        second = digests(paths)
        try:
            end = self.client.backups.end(store, session.id)
        except Gone as error:  # its lease ran out while nobody could renew it: the tool must copy again
            if error.code != "BACKUP_SESSION_EXPIRED":
                raise
            self.counts["backups not valid"] += 1
            return
        self.counts["backups valid" if end.valid else "backups not valid"] += 1
        if end.valid:
            assert first == second, f"files changed under a valid backup: {session.id}"
            assert end.changed == ()
