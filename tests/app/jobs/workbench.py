"""Jobs of toy kinds on a metadata database: submitted, claimed, run and looked at as values."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import text
from sqlmodel import Session, col, select, update

from app.clock import Clock, SystemClock
from app.db import Database
from app.jobs.errors import JobStopped
from app.jobs.rows import Job, JobCheckpoint, JobClass, JobEvent
from app.jobs.running.candidates import LimitsOf
from app.jobs.running.claims import ClaimedJob, Claimer, claim_next
from app.jobs.running.context import JobContext
from app.jobs.running.newer import labels_known
from app.jobs.running.openings import Openings
from app.jobs.running.runner import Runner
from app.jobs.running.tasks import TaskKind, TaskKinds
from app.jobs.service import JobRequest, submit
from app.jobs.states import JobState
from app.purge.models import PurgeKind
from app.settings import Settings

PATIENCE_S = 20.0


def claimer(instance: str = "ins_a", *, labels: frozenset[str] = frozenset(), ttl_s: float = 90.0) -> Claimer:
    return Claimer(
        instance_id=instance, labels=labels | labels_known(PurgeKind), lease_ttl_s=ttl_s, crash_loop_max=5
    )


def silent(_context: JobContext) -> None:
    """The proof of a kind that writes nowhere."""


def finish(context: JobContext) -> Mapping[str, Any]:
    """A task that is done at once."""
    return {"echo": dict(context.job.params)}


def work_until_stopped(context: JobContext) -> Mapping[str, Any]:
    """A task that only an order ends."""
    while True:
        context.check()
        time.sleep(0.002)


def kind(
    run: Callable[[JobContext], Mapping[str, Any]], prove: Callable[[JobContext], None] = silent
) -> TaskKinds:
    return {"TOY": TaskKind(run=run, prove_silence=prove)}


@dataclass
class Workbench:
    """What a test does with jobs."""

    database: Database
    clock: Clock
    settings: Settings
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(10**6)))

    def submit(self, kind: str = "TOY", *, store: str | None = "shop", **fields: Any) -> str:
        request = JobRequest(
            kind=kind, store=store, params=fields.pop("params", {}), requested_by="ann", **fields
        )
        with self.database.transaction() as db:
            return submit(db, request, now=self.clock.now(), queued_max=100_000).id

    def do(self, act: Callable[..., Job], job_id: str, **more: Any) -> Job:
        """One of the service's verbs, in a transaction of its own."""
        with self.database.transaction() as db:
            job = act(db, job_id, now=self.clock.now(), actor="ann", **more)
            db.refresh(job)
            return job

    def put(self, state: JobState, **values: Any) -> str:
        """A job that stands in a state."""
        job_id = self.submit()
        self.set(job_id, state=state, **values)
        return job_id

    def set(self, job_id: str, **values: Any) -> None:
        """Change a row as no program would: by hand."""
        with self.database.transaction() as db:
            db.execute(update(Job).where(col(Job.id) == job_id).values(**values))

    def claim(
        self,
        by: Claimer | None = None,
        *,
        job_class: JobClass = JobClass.BULK,
        limits: Mapping[str, int] | None = None,
    ) -> ClaimedJob | None:
        with self.database.transaction() as db:
            return claim_next(
                db,
                self.database,
                by or claimer(),
                job_class=job_class,
                parallel_limits=lambda _db, _stores: limits or {},
            )

    def context(self, by: Claimer | None = None, *, clock: Clock | None = None) -> JobContext:
        """Claim the next job and stand where its task would stand."""
        by = by or claimer()
        claimed = self.claim(by)
        assert claimed is not None
        return JobContext(
            claimed,
            instance_id=by.instance_id,
            database=self.database,
            settings=self.settings,
            clock=clock or self.clock,
            changed=lambda _job_id: None,
        )

    def job(self, job_id: str) -> Job:
        with self.database.reading() as db:
            job = db.get(Job, job_id)
            assert job is not None
            return job

    def row(self, job_id: str) -> dict[str, Any]:
        """Every column as it stands."""
        with self.database.reading() as db:
            return dict(db.execute(select(*Job.__table__.c).where(Job.id == job_id)).mappings().one())

    def state(self, job_id: str) -> str:
        return str(self.job(job_id).state)

    def events(self, job_id: str) -> list[JobEvent]:
        with self.database.reading() as db:
            query = select(JobEvent).where(JobEvent.job_id == job_id).order_by(col(JobEvent.seq))
            return list(db.exec(query).all())

    def states_seen(self, job_id: str) -> list[str]:
        return [event.data["state"] for event in self.events(job_id) if event.type == "state"]

    def checkpoint(self, job_id: str, name: str) -> dict[str, Any] | None:
        with self.database.reading() as db:
            row = db.get(JobCheckpoint, (job_id, name))
            return None if row is None else row.value

    def lapse(self, job_id: str) -> None:
        """Let a lease run out, by the database's own clock."""
        with self.database.transaction() as db:
            past = text("'2001-01-01 00:00:00.000000'" + ("" if self.database.is_sqlite else "::timestamptz"))
            db.execute(update(Job).where(col(Job.id) == job_id).values(lease_expires_at=past))

    def make_due(self, job_id: str) -> None:
        with self.database.transaction() as db:
            past = text("'2001-01-01 00:00:00.000000'" + ("" if self.database.is_sqlite else "::timestamptz"))
            db.execute(update(Job).where(col(Job.id) == job_id).values(not_before=past))

    def make_due_again(self, job: Job) -> None:
        """Have a job that rests tried again, and wait until somebody has taken it."""
        self.make_due(job.id)
        deadline = time.monotonic() + PATIENCE_S
        while self.job(job.id).attempt == job.attempt:
            assert time.monotonic() < deadline, f"nobody tries {job.id} again"
            time.sleep(0.01)

    def until(self, job_id: str, *states: str) -> Job:
        """Wait until the job stands in one of the states."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            job = self.job(job_id)
            if job.state in states:
                return job
            assert time.monotonic() < deadline, f"{job_id} is still {job.state}, wanted {states}"
            time.sleep(0.01)

    def runner(
        self,
        kinds: TaskKinds,
        *,
        by: Claimer | None = None,
        clock: Clock | None = None,
        limits: LimitsOf = lambda _db, _stores: {},
        suspended: Callable[[Session], Mapping[str, Any]] = lambda _db: {},
        openings: Openings | None = None,
        **settings: Any,
    ) -> Runner:
        return Runner(
            claimer=by or claimer(),
            kinds=kinds,
            database=self.database,
            settings=self.settings.model_copy(update=settings),
            clock=clock or SystemClock(),
            parallel_limits=limits,
            suspended_stores=suspended,
            openings=openings,
        )

    @contextmanager
    def running(self, kinds: TaskKinds, **more: Any) -> Iterator[Runner]:
        """A runner at work for the time of the block."""
        runner = self.runner(kinds, **more)
        runner.start()
        try:
            yield runner
        finally:
            stopped = runner.stop(10.0)
        assert stopped, "a job did not stop"


def in_threads(count: int, act: Callable[[int], Any]) -> list[Any]:
    """Run `act(0..count-1)` at once; returns the results, an exception in place of one."""
    results: list[Any] = [None] * count
    barrier = threading.Barrier(count)

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = act(number)
        except BaseException as error:  # noqa: BLE001 -- handed to the test
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def stopped_by(act: Callable[[], Any]) -> str | None:
    """Name of the cause for which a context stops its task."""
    try:
        act()
    except JobStopped as stopped:
        return stopped.cause.name
    return None


def until_somebody_waits_for_a_row(bench: Workbench) -> None:
    """Wait until a transaction of this PostgreSQL database stands behind another one's lock."""
    query = text(
        "select count(*) from pg_stat_activity "
        "where wait_event_type = 'Lock' and datname = current_database()"
    )
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with bench.database.reading() as db:
            if db.execute(query).scalar_one():
                return
        time.sleep(0.005)
    raise AssertionError("nobody waits")


def drain(url: str, instance: str, begin: str) -> None:
    """In a process of its own: claim from an instant on until nothing is left, and tell what it was."""
    database = Database(url)
    bench = Workbench(database, SystemClock(), Settings())
    time.sleep(max(0.0, float(begin) - time.time()))
    mine = []
    while (claimed := bench.claim(claimer(instance))) is not None:
        mine.append(claimed.id)
    database.close()
    print(json.dumps(mine), flush=True)
