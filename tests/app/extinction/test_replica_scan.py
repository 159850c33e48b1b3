"""The job of an extinction at a replica: its states, where it goes on, what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from app.db import Database
from app.extinction.queries import get_extinction
from app.extinction.records import insert_row, note_logged, submit_job
from app.extinction.reviewed import ReviewedExtinction
from app.extinction.rows import ExtinctionRow, ExtinctionState
from app.extinction.scan.replica_scan import run_replica_scan
from app.extinction.scan.settling import Settling
from app.extinction.service import commit_at_target
from app.jobs.engines.choice import Engines
from app.jobs.engines.engine import InlineEngine
from app.jobs.errors import JobStopped, JobWaiting, PlanNoLongerHolds, StopCause
from app.jobs.rows import JobCheckpoint, JobClaim
from app.jobs.running.abandonment import CHECKPOINT_TARGET
from app.jobs.running.claims import reap
from app.jobs.running.context import JobContext
from app.jobs.states import JobState
from app.kit.rests import Rest
from app.replication.replica.replicas import close_idle_replicas, note_supplied, opened_replica
from app.settings import Settings
from app.stores.models import StoreKind
from app.stores.rows import Store
from spark.formats.csn import Csn
from spark.formats.extinction import Extinction
from spark.formats.replica import tables_of
from spark.replication.consumer.extinctions import read_extinctions
from spark.targets.connection import Connection, identity
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench, claimer

ID = "ext_01k9x2m4c6d8e0f2g4h6j8k0mn"
OLD = Extinction(ID, frozenset([b"db"]), b"b", None, None, "old ones")


class Bench:
    """A replica on a file, with an extinction that is committed and has a job."""

    def __init__(self, database: Database, settings: Settings, clock: FakeClock) -> None:
        self.database, self.settings, self.clock = database, settings, clock
        self.jobs = Workbench(database, clock, settings)
        self.engines = Engines(InlineEngine(clock), None)
        self.store = Store(
            id="orders",
            kind=StoreKind.REPLICA,
            rid=1,
            url=f"sqlite:///{Path(settings.data_dir) / 'replica.db'}",
            table_prefix="replica_",
            parameters={"je.cleaner.extinctScanBatchSize": 4, "je.cleaner.extinctScanBatchDelay": "PT0S"},
            created_at=clock.now(),
            updated_at=clock.now(),
        )
        with database.transaction() as db:
            db.add(self.store)

    @contextmanager
    def target(self) -> Iterator[Connection]:
        """The replica."""
        with opened_replica(self.database, self.settings, self.store) as conn:
            yield conn

    def fill(self, keys: Sequence[bytes]) -> None:
        """Entries, past the service."""
        with self.target() as conn:
            conn.execute_rows(
                f"insert into {tables_of(conn).entries} values (?, ?, ?, ?, 0)",
                [(b"db", key, b"value", "6affffff000000010000") for key in keys],
            )

    def keys(self) -> list[bytes]:
        """Of the entries that are left."""
        with self.target() as conn:
            return [key for (key,) in conn.execute(f"select key from {tables_of(conn).entries} order by key")]

    def discard(self) -> str:
        """Reserve, commit, log; the job."""
        now = self.clock.now()
        with self.database.transaction() as db:
            insert_row(db, self.store.id, OLD, state=ExtinctionState.RESERVED, now=now)
        csn = commit_at_target(self.database, self.settings, self.store, OLD, now=now)
        with self.database.transaction() as db:
            row = get_extinction(db, self.store.id, ID)
            note_logged(db, row, now=now, csn=csn)
            job = submit_job(
                db,
                self.store,
                row,
                settings=self.settings,
                now=now,
                requested_by="ann",
                token_id=None,
            )
            return job.id

    def died(self, job_id: str) -> JobContext:
        """The attempt's process is gone; where the next one stands."""
        self.jobs.lapse(job_id)
        with self.database.transaction() as db:
            assert reap(db, self.database, claimer("ins_b")) == [job_id]
        self.jobs.make_due(job_id)
        return self.jobs.context(claimer("ins_b"))

    def row(self) -> ExtinctionRow:
        """As it stands."""
        with self.database.reading() as db:
            return get_extinction(db, self.store.id, ID)

    def run(self, context: JobContext) -> dict[str, Any]:
        """One attempt."""
        return dict(run_replica_scan(context, self.store, engines=self.engines))


@pytest.fixture
def bench(sqlite_database: Database, settings: Settings, clock: FakeClock) -> Iterator[Bench]:
    yield Bench(sqlite_database, settings, clock)
    close_idle_replicas()


def _stopping(context: JobContext, after: int) -> Callable[..., None]:
    """A throttle's charge that stops the job at some batch."""
    charges = iter(range(1, 10_000))

    def charge(**_: Any) -> None:
        if next(charges) == after:
            context.signal(StopCause.PAUSE)

    return charge


def test_its_entries_go_and_its_row_says_so(bench: Bench) -> None:
    bench.fill([b"a1", b"a2", *(b"b%03d" % number for number in range(50))])
    bench.discard()
    result = bench.run(bench.jobs.context())
    assert result == {"extinction_id": ID, "records": 50, "bytes": 50 * 9, "tombstones": 0}
    assert bench.keys() == [b"a1", b"a2"]
    row = bench.row()
    assert (row.state, row.records, row.bytes, row.done_at) == (
        ExtinctionState.DONE,
        50,
        450,
        bench.clock.now(),
    )


@pytest.mark.parametrize("after", [1, 2, 7])
def test_a_scan_that_was_stopped_goes_on_and_counts_nothing_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    bench.fill([b"b%03d" % number for number in range(50)])
    job_id = bench.discard()
    context = bench.jobs.context()
    monkeypatch.setattr(context.throttle, "charge", _stopping(context, after))
    with pytest.raises(JobStopped):
        bench.run(context)
    assert len(bench.keys()) == 50 - 4 * after
    assert bench.row().state == ExtinctionState.SCANNING
    assert bench.run(bench.died(job_id))["records"] == 50
    assert bench.keys() == []
    assert bench.row().records == 50


def _slept(
    bench: Bench, context: JobContext, patch: pytest.MonkeyPatch, *, stop_after_s: float | None = None
) -> list[float]:
    """What the job sleeps, by the bench's clock, never longer than a second at once; it may be stopped."""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(min(seconds, 1.0))
        bench.clock.advance(slept[-1])
        if stop_after_s is not None and sum(slept) >= stop_after_s:
            context.signal(StopCause.PAUSE)

    patch.setattr(context, "sleep", sleep)
    return slept


class _Elsewhere:
    """Workers of this process, in the place of a pool's."""

    name = "SPARK"

    def __init__(self, clock: FakeClock) -> None:
        self.lease = InlineEngine(clock).lease


@pytest.mark.parametrize("is_on_workers", [False, True])
def test_a_pause_is_as_long_as_it_was_said_and_ends_when_the_job_must_stop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_on_workers: bool
) -> None:
    if is_on_workers:
        engine = _Elsewhere(bench.clock)
        monkeypatch.setattr("app.extinction.scan.replica_scan._engine", lambda _scan, _engines: engine)
    parameters = {"je.cleaner.extinctScanBatchSize": 4, "je.cleaner.extinctScanBatchDelay": "PT7.5S"}
    bench.store.parameters = parameters
    bench.fill([b"b%03d" % number for number in range(16)])
    job_id = bench.discard()
    context = bench.jobs.context()
    slept = _slept(bench, context, monkeypatch, stop_after_s=17.0)
    with pytest.raises(JobStopped):
        bench.run(context)
    assert sum(slept) == 17.0
    assert len(bench.keys()) == 16 - 3 * 4
    context = bench.died(job_id)
    slept = _slept(bench, context, monkeypatch)
    assert bench.run(context)["records"] == 16
    assert (bench.keys(), sum(slept)) == ([], 7.5)


def test_what_an_abandoned_job_left_at_the_replica_is_shut_out_before_anything_goes(bench: Bench) -> None:
    bench.fill([b"b1"])
    job_id = bench.discard()
    with bench.target() as conn:
        place = {"identity": identity(conn), "resource": "replica.changelog", "ledger": True}
    gone = bench.jobs.put(JobState.ABANDONED, claim_identity=place["identity"])
    with bench.database.transaction() as db:
        db.add(JobCheckpoint(job_id=gone, name=CHECKPOINT_TARGET, value=place, at=bench.clock.now()))
    context = bench.jobs.context()
    assert context.job.id == job_id
    bench.run(context)
    assert bench.jobs.job(gone).fenced_off_at is not None


def test_a_target_that_was_put_back_to_before_it_is_waited_for(bench: Bench) -> None:
    bench.fill([b"b1"])
    bench.discard()
    with bench.target() as conn:
        conn.execute(f"delete from {tables_of(conn).extinctions}")
    with pytest.raises(JobWaiting) as waiting:
        bench.run(bench.jobs.context())
    assert [(each.kind, each.ref) for each in waiting.value.waiting_on] == [("EXTINCTION_METADATA", ID)]
    assert bench.keys() == [b"b1"]


def test_a_job_that_died_after_the_target_said_done_says_the_same(bench: Bench) -> None:
    bench.fill([b"b1", b"b2"])
    job_id = bench.discard()
    first = bench.run(bench.jobs.context())
    assert bench.run(bench.died(job_id)) == first
    assert bench.row().records == 2


def test_a_reviewed_plan_is_looked_at_under_the_lock_of_the_commit(bench: Bench) -> None:
    """The look before it is the request's; what is written in between is seen here."""
    bench.fill([b"b1", b"b2"])
    seen = ReviewedExtinction("job_plan", 2, 0, {1: Csn("6affffff000000010000")})

    def commit(reviewed: ReviewedExtinction) -> str:
        now = bench.clock.now()
        return commit_at_target(bench.database, bench.settings, bench.store, OLD, now=now, reviewed=reviewed)

    for changed, words in (
        (replace(seen, ruv={1: Csn("6afffffe000000010000")}), "2 records came since"),
        (replace(seen, ruv={2: Csn("6affffff000000020000")}), "2 records came since"),
        (replace(seen, records=3), "3 records were reviewed, 2 of them"),
    ):
        with pytest.raises(PlanNoLongerHolds, match=words):
            commit(changed)
    with bench.target() as conn:
        assert read_extinctions(conn) == []
    assert commit(seen)


def test_a_replica_at_rest_is_asked_after_a_supplier_was_there_or_after_a_while(bench: Bench) -> None:
    rests: dict[str, Rest] = {}

    def look(after: timedelta) -> list[str]:
        now = bench.clock.now() + after
        return Settling(bench.database, bench.settings, now, rests=rests).run()

    def come(name: str) -> None:
        extinction = replace(OLD, id=name)
        commit_at_target(bench.database, bench.settings, bench.store, extinction, now=bench.clock.now())

    bench.fill([b"b1"])
    assert look(timedelta()) == []
    come("ext_a")
    assert look(timedelta(seconds=20)) == []
    note_supplied(bench.store.id)
    assert len(look(timedelta(seconds=20))) == 1
    with bench.database.transaction() as db:
        get_extinction(db, bench.store.id, "ext_a").state = ExtinctionState.DONE
    come("ext_b")
    assert look(timedelta(seconds=40)) == []
    assert len(look(timedelta(seconds=51))) == 1


def test_a_replica_where_nothing_happens_is_asked_ever_more_seldom_up_to_a_bound(bench: Bench) -> None:
    rests: dict[str, Rest] = {}
    began = bench.clock.now()
    asked = []
    for second in range(0, 4_000, 10):
        Settling(bench.database, bench.settings, began + timedelta(seconds=second), rests=rests).run()
        until = rests[bench.store.id].until
        if not asked or asked[-1] != until:
            asked.append(until)
    lengths = [
        (later - before).total_seconds() for before, later in zip([began, *asked], asked, strict=False)
    ]
    assert lengths[:6] == [30, 60, 120, 240, 480, 600]
    assert set(lengths[6:]) == {600}


def test_an_extinction_that_its_target_has_given_up_is_committed_there_and_scanned_again(
    bench: Bench,
) -> None:
    bench.fill([b"b1"])
    job_id = bench.discard()
    bench.run(bench.jobs.context())
    first, now = bench.row().csn, bench.clock.now()
    bench.jobs.set(job_id, state="SUCCEEDED", finished_at=now, lease_instance=None)
    with bench.database.transaction() as db:
        db.execute(delete(JobClaim))
    with bench.target() as conn:
        conn.execute(f"delete from {tables_of(conn).extinctions}")
    bench.fill([b"b2"])
    later = now + timedelta(minutes=2)
    assert Settling(bench.database, bench.settings, later).run() == []
    with bench.target() as conn:
        [known] = read_extinctions(conn)
    assert (known.extinction, known.state) == (OLD, "LOGGED")
    assert known.csn > str(first)
    [again] = Settling(bench.database, bench.settings, later).run()
    assert again != job_id
    assert (bench.row().state, bench.row().csn) == (ExtinctionState.LOGGED, known.csn)
    assert bench.run(bench.jobs.context())["records"] == 1
    assert bench.keys() == []
    assert Settling(bench.database, bench.settings, later).run() == []
