"""Purges of small databases, run by a runner of this process or step by step by the test."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

from app.archives.rows import Archive
from app.clock import SystemClock
from app.erase.cycle.attempt import Workshop
from app.handlers import task_kinds
from app.jobs.engines.choice import Engines
from app.jobs.engines.engine import InlineEngine
from app.jobs.engines.spark_hands import HandsSource
from app.jobs.rows import Job
from app.jobs.running.context import JobContext
from app.jobs.running.tasks import TaskKinds
from app.jobs.service import JobRequest, submit
from app.purge.models import PurgeRequest
from app.purge.rules import fence_resource
from app.purge.service import snapshot
from app.stores.rows import Store
from app.sweeps.purging import JOB_PURGE
from tests.app.jobs.workbench import Workbench
from tests.oracles.symmetricds import CUTOFF, Place, build, random_database

OLD_CUTOFF = CUTOFF.replace(tzinfo=UTC)


@dataclass
class Purges:
    """What a test does with purges."""

    bench: Workbench

    @property
    def kinds(self) -> TaskKinds:
        return task_kinds(
            Engines(InlineEngine(SystemClock())), Workshop(HandsSource(self.bench.settings).take, "prc_test")
        )

    def fill(self, place: Place, *, rows: int = 200, seed: int = 11) -> Place:
        """A random database whose cut-off is CUTOFF."""
        build(place, random_database(Random(seed), place.version, rows=rows))
        return place

    def store(self, place: Place, name: str = "shop", **fields: Any) -> str:
        """Register a place."""
        now = datetime.now(UTC)
        row = Store(
            id=name,
            kind="SYMMETRICDS",
            url=place.url,
            schema_name=place.schema,
            table_prefix=place.prefix,
            created_at=now,
            updated_at=now,
            **fields,
        )
        with self.bench.database.transaction() as db:
            db.add(row)
        return name

    def submit(self, store: str = "shop", **fields: Any) -> str:
        """Queue a purge as a client does; force, because the oracle's times are now or later."""
        request = PurgeRequest.model_validate({"kind": "OUTGOING", "force": True} | fields)
        with self.bench.database.transaction() as db:
            row = db.get(Store, store)
            assert row is not None
            job = JobRequest(
                kind=JOB_PURGE,
                store=store,
                params=snapshot(db, row, request, None).model_dump(mode="json"),
                requested_by="ann",
                throttle=request.throttle,
                claim_resource=fence_resource(row),
            )
            return submit(db, job, now=self.bench.clock.now(), queued_max=100).id

    def run(self, job_id: str, *states: str) -> Job:
        """Let a runner work until the job has ended, or is in one of the states."""
        with self.bench.running(self.kinds):
            return self.bench.until(job_id, *(states or ("SUCCEEDED", "FAILED", "ABORTED")))

    def attempt(self) -> JobContext:
        """Claim the next job."""
        return self.bench.context()

    def archive(self, job_id: str) -> Archive | None:
        with self.bench.database.reading() as db:
            return db.get(Archive, job_id)

    def change_store(self, name: str = "shop", **fields: Any) -> None:
        with self.bench.database.transaction() as db:
            row = db.get(Store, name)
            assert row is not None
            row.sqlmodel_update(fields)
            db.add(row)
