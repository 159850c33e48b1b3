"""Purges ROWS and their plans, queued as a client does, for a runner of the test's process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlmodel import Session

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.jobs.plans.plans import submit_plan
from app.jobs.rows import Job
from app.rows.service import look
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.purging import submit_looked
from tests.regressions.purges import Purges

ANN = Caller("tok", "ann", frozenset(Scope), None)


@dataclass(frozen=True)
class RowPurges:
    """A store of kind SQL, and what a test asks of it."""

    purges: Purges
    url: str

    def add_store(self) -> None:
        """Register the target."""
        now = datetime.now(UTC)
        store = Store(id="shop", kind=StoreKind.SQL, url=self.url, created_at=now, updated_at=now)
        with self.purges.bench.database.transaction() as db:
            db.add(store)

    def submit(self, **fields: Any) -> str:
        """Queue a purge; its id."""
        return self._queued(fields, for_write=True)

    def plan(self, **fields: Any) -> Job:
        """Make a plan."""
        job = self.purges.run(self._queued(fields, for_write=False))
        assert job.state == "SUCCEEDED", job.error
        return job

    def _queued(self, fields: dict[str, Any], *, for_write: bool) -> str:
        bench, now = self.purges.bench, datetime.now(UTC)
        with bench.database.reading() as db:
            store = db.get_one(Store, "shop")
        looked = look(
            bench.database,
            store,
            {"kind": "ROWS"} | fields,
            settings=bench.settings,
            now=now,
            for_write=for_write,
        )

        def queue(db: Session) -> Job:
            known = db.get_one(Store, "shop")
            if not for_write:
                return submit_plan(db, known, looked.params, caller=ANN, settings=bench.settings, now=now)
            return submit_looked(db, known, looked, caller=ANN, reason=None, settings=bench.settings, now=now)

        with bench.database.transaction() as db:
            return queue(db).id
