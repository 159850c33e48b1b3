"""What a test does with cycles: begin them, run their jobs on a fake clock, order them, look at rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sqlmodel import col, select

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.erase.cycle.attempt import Workshop
from app.erase.cycle.plan_task import run_erasure_plan
from app.erase.cycle.silence import prove_erasure_silent
from app.erase.cycle.task import run_erasure
from app.erase.cycle.tick import Look
from app.erase.models import CycleRead, CycleRequest
from app.erase.queries import read_cycle
from app.erase.reviewed import check_early, find_plan
from app.erase.rows import ErasureCycle, ErasureEntries, ErasureFile, ErasureStore
from app.erase.service import JOB_ERASURE, params_of, submit_cycle
from app.jobs.again import retry
from app.jobs.errors import StopCause
from app.jobs.plans.plans import JOB_PLAN, submit_plan
from app.jobs.rows import Job, JobClass, JobEvent
from app.jobs.running.claims import claim_next, reap
from app.jobs.running.context import JobContext
from app.jobs.running.runner import Runner
from app.jobs.running.tasks import TaskKind
from app.jobs.service import request_abort, request_pause, request_resume
from app.protection.rows import Protection, ProtectionKind
from app.protection.service import NewProtection, create_protection, end_protection
from app.settings import Settings
from app.stores.models import StoreKind, StoreMode, SuspendRequest
from app.stores.resting import resume_store, suspend_store
from app.stores.rows import Store
from app.stores.service import get_store
from tests.app.erase.fake_hands import FakeLog
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import claimer

CALLER = Caller("tok_test", "ann", frozenset({Scope.ERASURE_WRITE}), None)
ATTEMPTS_MAX = 500


class Erasers:
    """One store and its cycles."""

    store_id = "je"

    def __init__(self, database: Database, settings: Settings, clock: FakeClock, log: FakeLog) -> None:
        self.database = database
        self.settings = settings
        self.clock = clock
        self.log = log
        self.process = "prc_1"
        self.context: JobContext | None = None

    # -- the store

    def add_store(self, **fields: Any) -> None:
        with self.database.transaction() as db:
            db.add(
                Store(
                    id=self.store_id,
                    kind=StoreKind.JE,
                    path=str(self.log.directory),
                    mode=StoreMode.CLOSED,
                    created_at=self.clock.now(),
                    updated_at=self.clock.now(),
                    **fields,
                )
            )

    def change_store(self, **fields: Any) -> None:
        with self.database.transaction() as db:
            get_store(db, self.store_id).sqlmodel_update(fields)

    def set(self, **parameters: Any) -> None:
        """Change parameters; `run_eraser` and `period` are the usual ones."""
        names = {"run_eraser": "je.env.runEraser", "period": "je.erase.period"}
        with self.database.transaction() as db:
            store = get_store(db, self.store_id)
            given = {names.get(name, name): value for name, value in parameters.items()}
            store.parameters = store.parameters | given
            db.add(store)

    def suspend(self) -> None:
        with self.database.transaction() as db:
            suspend_store(db, self.store_id, SuspendRequest(reason="test"), now=self.clock.now())

    def resume_store(self) -> None:
        with self.database.transaction() as db:
            resume_store(db, self.store_id, now=self.clock.now())

    def protect(self, *numbers: int, lease: timedelta = timedelta(hours=1)) -> str:
        new = NewProtection(
            kind=ProtectionKind.BACKUP,
            name="nightly",
            numbers=list(numbers),
            lease=lease,
        )
        with self.database.transaction() as db:
            row = create_protection(db, self.store_id, new, caller=CALLER, now=self.clock.now())
            return row.id

    def unprotect(self, protection_id: str) -> None:
        with self.database.transaction() as db:
            end_protection(db, db.get_one(Protection, protection_id), now=self.clock.now())

    # -- cycles

    def begin(self, **fields: Any) -> str:
        """Begin a cycle by a request; returns its id."""
        request = CycleRequest.model_validate(fields or {"min_file_age": "PT0S", "duration": "PT0S"})
        with self.database.reading() as db:
            reviewed = find_plan(db, get_store(db, self.store_id), request, now=self.clock.now())
        if reviewed is not None:
            check_early(self.database, reviewed, self.log.directory, max_drift=request.max_drift)
        with self.database.transaction() as db:
            store = get_store(db, self.store_id, lock=True)
            _job, cycle = submit_cycle(
                db,
                store,
                params_of(db, store, request, reviewed=reviewed),
                identity=None,
                caller=CALLER,
                reason="test",
                settings=self.settings,
                now=self.clock.now(),
            )
            return cycle.id

    def plan(self, **fields: Any) -> Job:
        """A PLAN job that has succeeded."""
        request = CycleRequest.model_validate(fields or {"min_file_age": "PT0S", "duration": "PT0S"})
        with self.database.transaction() as db:
            store = get_store(db, self.store_id)
            params = params_of(db, store, request, is_plan=True)
            now = self.clock.now()
            job_id = submit_plan(db, store, params, caller=CALLER, settings=self.settings, now=now).id
        assert self.attempt(JobClass.INTERACTIVE)
        with self.database.reading() as db:
            job = db.get_one(Job, job_id)
        assert job.state == "SUCCEEDED", job.error
        return job

    def tick(self) -> list[str]:
        return Look(self.database, self.settings, self.clock.now()).run()

    def cycles(self) -> list[ErasureCycle]:
        with self.database.reading() as db:
            return list(db.exec(select(ErasureCycle).order_by(col(ErasureCycle.id))).all())

    def cycle(self, cycle_id: str | None = None) -> ErasureCycle:
        found = self.cycles()
        return found[-1] if cycle_id is None else next(row for row in found if row.id == cycle_id)

    def shown(self) -> CycleRead:
        """The newest cycle as clients see it."""
        with self.database.reading() as db:
            store = get_store(db, self.store_id)
            return read_cycle(db, self.cycle(), store, now=self.clock.now())

    def file(self, number: int) -> ErasureFile:
        with self.database.reading() as db:
            return db.get_one(ErasureFile, (self.cycle().id, number))

    def states(self) -> dict[int, str]:
        with self.database.reading() as db:
            rows = db.exec(select(ErasureFile).where(ErasureFile.cycle_id == self.cycle().id)).all()
            return {row.number: str(row.state) for row in rows}

    def kept_plans(self) -> int:
        with self.database.reading() as db:
            return len(db.exec(select(ErasureEntries.number)).all())

    def sums(self) -> ErasureStore:
        with self.database.reading() as db:
            return db.get_one(ErasureStore, self.store_id)

    def job(self, cycle_id: str | None = None) -> Job:
        with self.database.reading() as db:
            return db.get_one(Job, self.cycle(cycle_id).job_id)

    def waiting_kinds(self) -> list[str]:
        return [item["kind"] for item in self.job().waiting_on]

    def events(self, kind: str) -> list[dict[str, Any]]:
        with self.database.reading() as db:
            query = select(JobEvent).where(JobEvent.job_id == self.cycle().job_id, JobEvent.type == kind)
            return [event.data for event in db.exec(query.order_by(col(JobEvent.seq))).all()]

    def messages(self) -> list[str]:
        return [data["message"] for data in self.events("eraser")]

    # -- jobs

    def attempt(self, job_class: JobClass = JobClass.BULK) -> bool:
        """Let a runner claim and run what is due now, once; whether there was anything."""
        runner = self._runner()
        with self.database.transaction() as db:
            reap(db, self.database, runner.claimer)
            job = claim_next(
                db,
                self.database,
                runner.claimer,
                job_class=job_class,
                parallel_limits=lambda _db, _stores: {},
            )
        if job is None:
            return False
        self.context = JobContext(
            job,
            instance_id=runner.claimer.instance_id,
            database=self.database,
            settings=self.settings,
            clock=self.clock,
            changed=lambda _job_id: None,
        )
        runner._attempt(self.context)
        return True

    def run(self, *, until_s: float = 0.0, until: Callable[[], object] = lambda: False) -> None:
        """Run all that is due, moving the clock to the next wait's end, at most so far, or until it is so."""
        stop_at = self.clock.now() + timedelta(seconds=until_s)
        for _ in range(ATTEMPTS_MAX):
            if until():
                return
            if self.attempt():
                continue
            due = self.job().not_before
            if due is None or due > stop_at:
                left_s = (stop_at - self.clock.now()).total_seconds()
                self.clock.advance(max(0.0, left_s))
                return
            self.clock.advance(max(0.001, (due - self.clock.now()).total_seconds()))
        raise AssertionError("it does not come to rest")

    def signal(self, cause: StopCause) -> None:
        """Order the task at work to stop."""
        assert self.context is not None
        self.context.signal(cause)

    def pause(self) -> None:
        with self.database.transaction() as db:
            request_pause(db, self.cycle().job_id, now=self.clock.now(), actor="ann")

    def resume(self) -> None:
        with self.database.transaction() as db:
            request_resume(db, self.cycle().job_id, now=self.clock.now(), actor="ann")

    def abort(self) -> None:
        with self.database.transaction() as db:
            request_abort(db, self.cycle().job_id, now=self.clock.now(), actor="ann")

    def retry(self) -> None:
        with self.database.transaction() as db:
            retry(
                db,
                self.cycle().job_id,
                now=self.clock.now(),
                actor="ann",
                token_id="tok_test",
                queued_max=100,
            )

    def restart(self, *, away_s: float = 0.0) -> None:
        """The service is gone for a while; what it held is claimed again."""
        self.clock.advance(away_s)
        self.process = f"prc_{away_s}_{self.clock.boottime_s()}"

    def _runner(self) -> Runner:
        workshop = Workshop(self.log.take, self.process)
        kind = TaskKind(
            run=lambda context: run_erasure(context, workshop=workshop),
            prove_silence=prove_erasure_silent,
        )
        planning = TaskKind(
            run=lambda context: run_erasure_plan(context, workshop=workshop),
            prove_silence=prove_erasure_silent,
        )
        return Runner(
            claimer=claimer(),
            kinds={JOB_ERASURE: kind, JOB_PLAN: planning},
            database=self.database,
            settings=self.settings,
            clock=self.clock,
            parallel_limits=lambda _db, _stores: {},
            suspended_stores=lambda _db: {},
        )
