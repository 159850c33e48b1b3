"""What Prometheus reads: sums that grow; a scrape costs the same however many jobs have ended."""

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlmodel import Session, delete, select

from app.archives.rows import Archive
from app.db import Database
from app.erase.rows import ErasureStore
from app.events.lags import note_lags
from app.figures.rows import Figure
from app.figures.sums import Name, count
from app.jobs.counting import ABORT_BUCKETS_S, BEYOND, bucket_of
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.rows import Job, JobEvent
from app.jobs.running.context import JobContext
from app.jobs.service import request_abort, request_pause
from app.jobs.states import JobState
from app.kit.ids import new_id
from app.kit.request_figures import NO_ROUTE, RequestFigures
from app.metrics.exposition import render_metrics
from app.metrics.stores import lags_of
from app.protection.rows import Protection, ProtectionKind, ProtectionState
from app.schedules.rows import Schedule, ScheduleFiring
from app.stores.models import StoreKind
from app.stores.rows import Store
from app.sweeps.rows import SweepTick
from spark.events.records import Confirmed
from tests.app.agreements import agreement_of
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench, in_threads, kind
from tests.app.many import add_many, padded

LINE = re.compile(r"^(\w+(?:\{.*\})?) (\S+)$", re.MULTILINE)


def scraped(database: Database, **more: Any) -> dict[str, float]:
    text = render_metrics(database, alive_within_s=90, **more).decode()
    return {name: float(value) for name, value in LINE.findall(text)}


def owed(database: Database, **more: Any) -> dict[tuple[str, str], float]:
    """Since when a success is owed, by store and verb."""
    name = re.compile(r'lethe_success_owed_timestamp_seconds{store="(.+)",verb="(.+)"}')
    found = {name.fullmatch(key): value for key, value in scraped(database, **more).items()}
    return {(key[1], key[2]): value for key, value in found.items() if key is not None}


def ended(bench: Workbench, store: str, verb: str, state: JobState, *, ago: timedelta) -> float:
    """A job that has ended so long ago; returns when."""
    at = bench.clock.now() - ago
    job_id = bench.submit(verb, store=store)
    bench.set(job_id, state=state, finished_at=at)
    if state is JobState.SUCCEEDED:
        with bench.database.transaction() as db:
            count(db, Name.LAST_SUCCESS, verb, store=store, value=at.timestamp(), now=at)
    return at.timestamp()


def tick(bench: Workbench, store: str, kind: str) -> None:
    with bench.database.transaction() as db:
        db.add(SweepTick(store=store, kind=kind, interval_s=60.0, next_at=bench.clock.now()))


def test_what_recurs_owes_a_success_from_its_first_failure_on(bench: Workbench) -> None:
    """One plan was a verb without a recent success two days later; who never succeeded was none."""
    register(bench, "shop", "never", "idle")
    day = timedelta(days=1)
    ended(bench, "shop", "PLAN", JobState.SUCCEEDED, ago=40 * day)
    ended(bench, "shop", "EVENT_CLEANUP", JobState.FAILED, ago=3 * day)  # nobody makes it recur
    tick(bench, "shop", "OUTGOING")
    tick(bench, "never", "EVENT_CLEANUP")
    tick(bench, "idle", "OUTGOING")
    ended(bench, "shop", "PURGE", JobState.FAILED, ago=30 * day)
    ended(bench, "shop", "PURGE", JobState.SUCCEEDED, ago=20 * day)
    assert owed(bench.database) == {}
    first = ended(bench, "shop", "PURGE", JobState.FAILED, ago=9 * day)
    for days in (8, 7, 6):
        ended(bench, "shop", "PURGE", JobState.ABORTED, ago=days * day)
    never = ended(bench, "never", "EVENT_CLEANUP", JobState.FAILED, ago=5 * day)
    bench.submit("PURGE", store="idle")
    assert owed(bench.database) == {("shop", "PURGE"): first, ("never", "EVENT_CLEANUP"): never}
    assert owed(bench.database, stores=["shop"]) == {("shop", "PURGE"): first}
    ended(bench, "shop", "PURGE", JobState.SUCCEEDED, ago=0 * day)
    assert list(owed(bench.database)) == [("never", "EVENT_CLEANUP")]


def test_schedules_erasers_and_agreements_recur_too(bench: Workbench) -> None:
    names = ("old", "new", "refused", "paused", "je", "replica")
    register(bench, *names)
    now, day = bench.clock.now(), timedelta(days=1)
    with bench.database.transaction() as db:
        for name, more in {
            "old": {"created_at": now - 30 * day},
            "new": {"created_at": now - day},
            "refused": {"created_at": now - 30 * day, "last_outcome": "REFUSED"},
            "paused": {"created_at": now - 30 * day, "is_paused": True},
        }.items():
            db.add(schedule_of(name, now, more))
        db.flush()
        for days, outcome in ((9, "SUBMITTED"), (8, "REFUSED"), (7, "REFUSED")):
            at = now - days * day
            row = ScheduleFiring(schedule_id="sch_refused", due_at=at, fired_at=at, outcome=outcome)
            db.add(row)
        db.add(ErasureStore(store="je", seen_enabled=True, updated_at=now))
        db.add(agreement_of("replica", now, interval_s=60.0))
    since = {name: ended(bench, name, "ARCHIVE_VERIFY", JobState.FAILED, ago=4 * day) for name in names[:4]}
    erasure = ended(bench, "je", "ERASURE", JobState.FAILED, ago=2 * day)
    session = ended(bench, "replica", "REPLICATION_SESSION", JobState.ABANDONED, ago=2 * day)
    assert owed(bench.database) == {
        ("old", "ARCHIVE_VERIFY"): since["old"],  # the new one was not there when that job failed
        ("refused", "ARCHIVE_VERIFY"): (now - 8 * day).timestamp(),
        ("je", "ERASURE"): erasure,
        ("replica", "REPLICATION_SESSION"): session,
    }


def schedule_of(store: str, now: datetime, more: Mapping[str, Any]) -> Schedule:
    fields = {"id": f"sch_{store}", "verb": "ARCHIVE_VERIFY", "store": store, "cron": "0 0 * * *"}
    fields |= {"time_zone": "UTC", "overlap": "FORBID", "missed": "SKIP", "token_id": "tok_x"}
    return Schedule(**fields | {"created_by": "ann", "updated_at": now, "reckoned_at": now} | dict(more))


def register(bench: Workbench, *names: str) -> None:
    with bench.database.transaction() as db:
        for name in names:
            now = bench.clock.now()
            db.add(
                Store(
                    id=name, kind=StoreKind.SYMMETRICDS, url="sqlite:////none", created_at=now, updated_at=now
                )
            )


def purge(context: JobContext) -> Mapping[str, Any]:
    return {"removed": {"sym_data": 5, "sym_data_event": 7}}


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    seen: list[str] = []

    def note(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        seen.append(statement)

    sa.event.listen(database.engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(database.engine, "before_cursor_execute", note)


def fill(database: Database, bench: Workbench, number: int) -> None:
    """Ended purges, each with a result that takes some reading."""
    now = bench.clock.now()
    result = {"removed": {f"table_{place}": place for place in range(20)}, "notes": ["x" * 500] * 8}
    row = Job(
        id=new_id("job"), kind="PURGE", store="shop0", state="SUCCEEDED", requested_by="ann", engine="INLINE",
        params={}, result=result, created_at=now, updated_at=now, finished_at=now, runs_on=[], waiting_on=[],
    )  # fmt: skip
    with database.transaction() as db:
        add_many(db, row, number, store=lambda place: "shop" + padded(place % 5, 1))


def test_a_scrape_asks_the_same_at_24_jobs_and_10_000(bench: Workbench) -> None:
    # 295 ms of CPU at 10,000, 37 times what it was at 24: it read each purge's result.
    database = bench.database
    fill(database, bench, 24)
    scraped(database)
    with statements(database) as few:
        few_s = _cpu_s(database)
    fill(database, bench, 9_976)
    if not database.is_sqlite:
        with database.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("vacuum analyze jobs")
    scraped(database)
    with statements(database) as many:
        many_s = _cpu_s(database)
    print(f"CPU of a scrape: {few_s * 1000:.2f} ms at 24 jobs, {many_s * 1000:.2f} ms at 10,000")
    assert len(few) == len(many)
    assert few == many
    assert not [each for each in many if "jobs.result" in each]
    assert many_s < 3 * few_s + 0.002  # twice, measured alone


def _cpu_s(database: Database) -> float:
    """The least of some scrapes: others share the machine."""
    taken = []
    for _ in range(5):
        began = time.thread_time()
        scraped(database)
        taken.append(time.thread_time() - began)
    return min(taken)


def test_sums_grow_with_the_jobs_that_end_and_outlive_them(bench: Workbench) -> None:
    register(bench, "shop")
    tasks = dict(kind(purge)) | {"PURGE": kind(purge)["TOY"]}
    with bench.running(tasks):
        for _ in range(3):
            bench.until(bench.submit("PURGE"), "SUCCEEDED")
        bench.until(bench.submit("TOY"), "SUCCEEDED")
    seen = scraped(bench.database)
    assert seen['lethe_purge_rows_removed_total{store="shop",table="sym_data"}'] == 15
    assert seen['lethe_purge_rows_removed{store="shop",table="sym_data_event"}'] == 21
    assert seen['lethe_jobs_ended_total{kind="PURGE",state="SUCCEEDED"}'] == 3
    with bench.database.transaction() as db:  # retention
        db.execute(delete(JobEvent))
        db.execute(delete(Job))
    after = scraped(bench.database)
    assert after['lethe_purge_rows_removed_total{store="shop",table="sym_data"}'] == 15
    assert after['lethe_jobs_ended_total{kind="PURGE",state="SUCCEEDED"}'] == 3
    assert 'lethe_jobs{kind="PURGE",state="SUCCEEDED"}' not in after


def test_last_success_is_told_by_store_and_verb_and_goes_with_the_store(bench: Workbench) -> None:
    register(bench, "shop", "bakery")

    def fail(context: JobContext) -> Mapping[str, Any]:
        if context.job.store == "bakery":
            raise JobFailed("NO", "no")
        return {}

    with bench.running(kind(fail)):
        bench.until(bench.submit(store="shop"), "SUCCEEDED")
        bench.until(bench.submit(store="bakery"), "FAILED")
    name = "lethe_last_success_timestamp_seconds"
    seen = {key: value for key, value in scraped(bench.database).items() if key.startswith(name)}
    assert list(seen) == [f'{name}{{store="shop",verb="TOY"}}']
    now = bench.clock.now().timestamp() if bench.database.is_sqlite else time.time()
    assert seen[f'{name}{{store="shop",verb="TOY"}}'] == pytest.approx(now, abs=60)
    with bench.database.transaction() as db:
        db.execute(delete(Store))
    assert not [key for key in scraped(bench.database) if key.startswith(name)]


def test_oldest_wait_is_older_than_its_last_look(sqlite_bench: Workbench, clock: FakeClock) -> None:
    bench = sqlite_bench
    looks = []

    def look(context: JobContext) -> Mapping[str, Any]:
        looks.append(1)
        cause = "BACKUP" if len(looks) <= 4 else "LOCK"
        raise JobWaiting([WaitingOn(kind=cause, ref=str(len(looks)))], not_before=None)

    with bench.running(kind(look)):
        began = clock.now().timestamp()
        job_id = bench.submit()
        for number in range(1, 5):
            _until(lambda seen=number: len(looks) == seen and bench.state(job_id) == "WAITING")
            clock.sleep(100)
            if number < 4:
                bench.make_due(job_id)
        assert scraped(bench.database)['lethe_wait_oldest_timestamp_seconds{cause="BACKUP"}'] == began
        bench.make_due(job_id)
        _until(lambda: len(looks) == 5 and bench.state(job_id) == "WAITING")
        began = clock.now().timestamp()
        clock.sleep(7)
        seen = scraped(bench.database)
        assert seen['lethe_wait_oldest_timestamp_seconds{cause="LOCK"}'] == began
        assert 'lethe_wait_oldest_timestamp_seconds{cause="BACKUP"}' not in seen
        bench.do(request_pause, job_id)
        bench.until(job_id, "PAUSED")
    assert not [key for key in scraped(bench.database) if "wait_oldest" in key]


def _until(met: Any) -> None:
    deadline = time.monotonic() + 20
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_abort_latency_is_a_histogram_from_the_order_to_silence(bench: Workbench) -> None:
    asked = bench.put(JobState.RUNNING, unproven=True, lease_instance="ins_a", fencing_token=1)
    bench.do(request_abort, asked)
    bench.lapse(asked)
    with bench.running(kind(purge)):
        bench.until(asked, "ABORTED")
    bench.do(request_abort, bench.submit())  # it had not begun
    seen = scraped(bench.database)
    assert seen['lethe_job_abort_latency_seconds_count{kind="TOY"}'] == 2
    assert seen['lethe_job_abort_latency_seconds_bucket{kind="TOY",le="+Inf"}'] == 2
    counts = [
        seen[f'lethe_job_abort_latency_seconds_bucket{{kind="TOY",le="{le}"}}'] for le in ABORT_BUCKETS_S
    ]
    assert counts == sorted(counts)
    assert seen['lethe_job_abort_latency_seconds_sum{kind="TOY"}'] >= 0
    assert seen['lethe_jobs_ended_total{kind="TOY",state="ABORTED"}'] == 2
    assert (bucket_of(0.0), bucket_of(1.0), bucket_of(1.01), bucket_of(10**9)) == (
        "0.1",
        "1.0",
        "2.5",
        BEYOND,
    )


def test_what_is_rolled_back_is_not_counted_and_many_at_once_are(bench: Workbench) -> None:
    now = bench.clock.now()

    def fail(db: Session) -> None:
        count(db, Name.JOBS_ENDED, "TOY", "SUCCEEDED", store="shop", now=now)
        raise KeyError

    with pytest.raises(KeyError), bench.database.transaction() as db:
        fail(db)

    def add(number: int) -> None:
        names = ["a", "b", "c", "d"]
        for _ in range(5):
            with bench.database.transaction() as db:
                for store in names if number % 2 else reversed(names):  # crosswise
                    count(db, Name.JOBS_ENDED, "TOY", "SUCCEEDED", store=store, now=now)
                    count(db, Name.JOBS_ENDED, "TOY", "SUCCEEDED", store=store, now=now)

    assert in_threads(8, add) == [None] * 8
    seen = scraped(bench.database)
    assert seen['lethe_jobs_ended_total{kind="TOY",state="SUCCEEDED"}'] == 8 * 5 * 4 * 2
    with bench.database.reading() as db:
        assert len(db.exec(select(Figure)).all()) == 4


def test_lags_of_slony_are_those_of_the_last_look(bench: Workbench) -> None:
    register(bench, "fxa")
    now = bench.clock.now()
    behind = Confirmed(1, 2, 10, now, 14, 4, timedelta(seconds=30))
    never = Confirmed(1, 3, None, None, 14, 14, None)
    for rows in ([behind, never, Confirmed(1, 9, 1, now, 1, 0, timedelta(0))], [behind, never]):
        with bench.database.transaction() as db:
            note_lags(db, "fxa", rows, now=now)
    seen = {key: value for key, value in scraped(bench.database).items() if "slony" in key}
    assert seen == {
        'lethe_slony_lag_events{origin="1",receiver="2",store="fxa"}': 4,
        'lethe_slony_lag_events{origin="1",receiver="3",store="fxa"}': 14,
        'lethe_slony_lag_seconds{origin="1",receiver="2",store="fxa"}': 30,
        'lethe_slony_lag_seconds{origin="1",receiver="3",store="fxa"}': float("inf"),
    }


def test_lags_of_a_consumer_are_by_rid_and_mind_what_was_written_since() -> None:
    def csn(second: int, rid: int) -> str:
        return f"{second:08x}0000{rid:04x}0000"

    supplier = {"rid": 1, "ruv": {"1": csn(1000, 1), "2": csn(500, 2)}}
    consumer = {"ruv": {"1": csn(990, 1), "2": csn(500, 2)}}
    assert lags_of(supplier, consumer, None) == {"1": 10, "2": 0}
    assert lags_of(supplier, consumer, csn(1090, 1)) == {"1": 100, "2": 0}
    assert lags_of(supplier, {"ruv": None}, None) == {"1": 1000, "2": 500}
    assert lags_of({}, {}, csn(1090, 1)) == {}


def test_protections_and_archives_are_told(sqlite_bench: Workbench, clock: FakeClock) -> None:
    now = clock.now()
    with sqlite_bench.database.transaction() as db:
        _protect(db, "env", now - timedelta(seconds=300), expires=now + timedelta(hours=1))
        _protect(db, "env", now - timedelta(seconds=100), expires=now + timedelta(hours=1))
        _protect(db, "old", now - timedelta(seconds=900), expires=now - timedelta(seconds=1))
        for number, size in enumerate((10, 32)):
            db.add(
                Archive(
                    job_id=f"job_{number}",
                    store="shop",
                    directory="/a",
                    instance="ins_a",
                    resource="r",
                    created_at=now,
                    bytes=size,
                    expires_at=now,
                )
            )
    seen = scraped(sqlite_bench.database)
    assert seen['lethe_archive_bytes{store="shop"}'] == 42
    assert seen['lethe_protection_oldest_timestamp_seconds{store="env"}'] == now.timestamp() - 300
    assert seen['lethe_protected_bytes{store="env"}'] == 0
    assert 'lethe_protection_oldest_timestamp_seconds{store="old"}' not in seen


def _protect(db: Session, store: str, at: Any, *, expires: Any) -> None:
    db.add(
        Protection(
            id=new_id("prt"),
            store=store,
            kind=ProtectionKind.SCAN,
            name="n",
            state=ProtectionState.ACTIVE,
            lease=timedelta(hours=1),
            lease_expires_at=expires,
            requested_by="ann",
            created_at=at,
        )
    )


def test_a_limited_token_sees_its_own_figures_only(bench: Workbench) -> None:
    register(bench, "mine", "theirs")
    with bench.running(dict(kind(purge)) | {"PURGE": kind(purge)["TOY"]}):
        for store, verb in (("mine", "PURGE"), ("theirs", "PURGE"), ("theirs", "TOY")):
            bench.until(bench.submit(verb, store=store), "SUCCEEDED")
        bench.do(request_abort, bench.submit(store="theirs", runs_on=["nowhere"]))
    requests = RequestFigures()
    text = render_metrics(bench.database, alive_within_s=90, stores=["mine"], requests=requests).decode()
    assert 'lethe_jobs_ended_total{kind="PURGE",state="SUCCEEDED"} 1.0' in text
    assert 'lethe_last_success_timestamp_seconds{store="mine",verb="PURGE"}' in text
    hidden = ("theirs", "TOY", "lethe_http", "lethe_build", "lethe_instances", "lethe_spark")
    assert [word for word in hidden if word in text] == []
    assert "lethe_build_info{" in render_metrics(bench.database, alive_within_s=90).decode()


def test_what_strangers_try_makes_no_figures_of_its_own() -> None:
    figures = RequestFigures()
    for number in range(1_000):
        figures.answered({"method": f"M{number}", "path": f"/{number}"}, 404, 0.1)
    [family] = [each for each in figures.collect() if each.name == "lethe_http_requests"]
    totals = [each for each in family.samples if each.name.endswith("_total")]
    assert [(each.labels, each.value) for each in totals] == [
        ({"method": "OTHER", "route": NO_ROUTE, "status": "404"}, 1_000)
    ]


def test_oldest_wait_of_the_queue_is_one_for_a_runner(bench: Workbench, clock: FakeClock) -> None:
    began = clock.now().timestamp()
    bench.submit()
    clock.sleep(100)
    bench.submit()
    assert scraped(bench.database)['lethe_wait_oldest_timestamp_seconds{cause="QUEUED"}'] == began
