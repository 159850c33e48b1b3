"""Stores of kind SLONY on loaded catalogs, and waits on them, looked at attempt by attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.events.waits.models import WaitRequest
from app.events.waits.service import Prepared, check_request, prepare_wait, submit_wait
from app.events.waits.task import prove_wait_silent, run_wait
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.rows import Job, JobClass
from app.jobs.running import outcome
from app.jobs.running.context import JobContext
from app.stores.rows import Store, StoreKind
from tests.app.jobs.workbench import Workbench, claimer
from tests.spark.events.catalogs import LoadedCatalog

ADMIN = Caller(token_id="tok_a", name="ann", scopes=frozenset({Scope.ADMIN}), stores=None)


@dataclass
class Waits:
    """Waits of one workbench."""

    bench: Workbench

    def register(self, name: str, loaded: LoadedCatalog, **fields: Any) -> Store:
        """A store on a loaded catalog."""
        now = self.bench.clock.now()
        store = Store(
            id=name,
            kind=StoreKind.SLONY,
            url=fields.pop("url", loaded.url),
            cluster=loaded.cluster,
            created_at=now,
            updated_at=now,
            **fields,
        )
        with self.bench.database.transaction() as db:
            db.add(store)
        return store

    def prepare(self, store: Store, *, caller: Caller = ADMIN, wait_s: int = 0, **request: Any) -> Prepared:
        asked = WaitRequest.model_validate({"origin": 1, "confirmed": "ALL"} | request)
        check_request(asked, wait_s=wait_s)
        return prepare_wait(self.bench.database, self.bench.settings, store, asked, caller=caller)

    def submit(self, store: Store, **request: Any) -> str:
        """The id of a new wait."""
        prepared = self.prepare(store, **request)
        with self.bench.database.transaction() as db:
            return submit_wait(
                db,
                store,
                prepared,
                reason=None,
                caller=ADMIN,
                settings=self.bench.settings,
                now=self.bench.database.now(db),
            ).id

    def context(self) -> JobContext:
        """Claim the next wait and stand where its task would stand."""
        claimed = self.bench.claim(job_class=JobClass.INTERACTIVE)
        assert claimed is not None, "nothing is due"
        return JobContext(
            claimed,
            instance_id=claimer().instance_id,
            database=self.bench.database,
            settings=self.bench.settings,
            clock=self.bench.clock,
            changed=lambda _job_id: None,
        )

    def attempt(self, job_id: str) -> Job:
        """Claim the wait, look once, and write what comes of it, as a runner does."""
        context = self.context()
        assert context.job.id == job_id
        try:
            outcome.succeed(context, run_wait(context))
        except JobWaiting as waiting:
            prove_wait_silent(context)
            outcome.wait(context, waiting, proven=True)
        except JobFailed as failed:
            outcome.fail(context, failed)
        return self.bench.job(job_id)

    def told(self, job_id: str) -> list[Mapping[str, Any]]:
        """The data of its events `outstanding`."""
        return [event.data for event in self.bench.events(job_id) if event.type == "outstanding"]
