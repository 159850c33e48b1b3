"""A service that runs nothing itself and two workers beside it, on one PostgreSQL metadata."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from lethe_client import Lethe

from tests.journeys.crashes import CRASHING
from tests.journeys.ground import activity, connection_to
from tests.journeys.service import Process, Service, serving, until, working
from tests.postgresql_server import PostgresqlServer

LABEL = "pool"
LEASE_TTL_S = 3.0


@dataclass
class Runners:
    """The processes; jobs of stores that run on LABEL are run by one of the workers."""

    service: Service
    workers: tuple[Process, Process]

    @property
    def client(self) -> Lethe:
        return self.service.client

    def holder(self, job_id: str) -> Process:
        """The worker that runs a job now."""

        def find() -> Process | None:
            instance = self.client.jobs.get(job_id).instance
            return next((worker for worker in self.workers if worker.instance == instance), None)

        found = until(find)
        assert isinstance(found, Process)
        return found

    def revive(self) -> None:
        """Wake who sleeps and start who was killed."""
        for worker in self.workers:
            if worker.has_ended():
                worker.spawn()
            else:
                worker.thaw()

    def await_other(self, job_id: str, former: Process) -> float:
        """Wait until another worker than the former runs the job; how long that took, in seconds."""
        begun = time.monotonic()
        instance = former.instance
        until(lambda: self.client.jobs.get(job_id).instance not in (None, instance), timeout_s=40)
        return time.monotonic() - begun


@contextmanager
def two_workers(
    directory: Path, server: PostgresqlServer, settings: Mapping[str, str] | None = None
) -> Iterator[Runners]:
    """Start all three; the archive root is shared, as it must be between machines."""
    shared = {
        **CRASHING,
        "LETHE_LEASE_TTL_S": str(LEASE_TTL_S),
        "LETHE_LEASE_SELF_STOP_S": str(LEASE_TTL_S - 1),
        "LETHE_METADATA_URL": server.create_database(f"metadata_of_{directory.name}"),
        "LETHE_ARCHIVE_ROOT": str(directory / "archive"),
        **(settings or {}),
    }
    work = {**shared, "LETHE_LABELS": LABEL}
    with ExitStack() as stack:
        service = stack.enter_context(serving(directory / "service", {**shared, "LETHE_MIGRATE": "true"}))
        first, second = (stack.enter_context(working(directory / f"worker{n}", work)) for n in (1, 2))
        until(lambda: len([each for each in service.client.instances.list() if each.role == "worker"]) == 2)
        yield Runners(service, (first, second))


def is_inside_a_unit(connection: psycopg.Connection[Any], job_id: str) -> bool:
    """Whether a worker's session of the job has a transaction open (its control session does not count)."""
    return any(":control:" not in name and begun for _, name, _, begun in activity(connection, job_id))


def freeze_inside_a_unit(runners: Runners, url: str, job_id: str, *, tries: int = 300) -> Process:
    """SIGSTOP the job's runner while one of its transactions is open, for good."""
    with connection_to(url) as connection:
        for _ in range(tries):
            process = runners.holder(job_id)
            process.freeze()
            time.sleep(0.02)  # what the server was told already comes to its end
            if is_inside_a_unit(connection, job_id):
                return process
            process.thaw()
            time.sleep(0.013)
    raise AssertionError("no transaction was ever open")


def tokens_by_time(url: str, job_id: str) -> list[int]:
    """The fencing tokens of a job's ledger rows, as they were committed."""
    query = "select token from lethe.unit_ledger where job_id = %s order by committed_at, token"
    with connection_to(url) as connection:
        return [row[0] for row in connection.execute(query, (job_id,)).fetchall()]
