"""What a task knows: checkpoints, progress without paused time, the live throttle, metadata that is away."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from sqlmodel import Session

from app.db import Database
from app.errors import MetadataUnavailable
from app.jobs.again import set_throttle
from app.jobs.errors import JobStopped, LeaseLost, StopCause
from app.jobs.models import ThrottleSetting
from app.jobs.running.context import JobContext
from app.jobs.service import request_pause, request_resume
from app.kit.instants import instant_text
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench, finish, kind, stopped_by, work_until_stopped


def test_checkpoint_survives_the_attempt_and_is_replaced_by_name(bench: Workbench) -> None:
    job_id = bench.submit()
    first = bench.context()
    assert first.checkpoint("units") is None
    first.save_checkpoint("units", {"done": 1})
    first.save_checkpoint("cutoff", {"at": "2024-01-01"})
    first.save_checkpoint("units", {"done": 2})
    bench.set(job_id, state="QUEUED", lease_instance=None)
    second = bench.context()
    assert second.checkpoint("units") == {"done": 2}
    assert second.checkpoint("cutoff") == {"at": "2024-01-01"}


def test_progress_shows_rate_fraction_and_end(sqlite_bench: Workbench) -> None:
    bench, clock = sqlite_bench, sqlite_bench.clock
    assert isinstance(clock, FakeClock)
    job_id = bench.submit()
    context = bench.context()
    context.progress(unit="rows", done=0, total=1_000)
    assert bench.job(job_id).progress == {
        "unit": "rows", "done": 0, "total": 1_000, "total_is_estimate": False,
        "fraction": 0.0, "rate_per_s": None, "eta": None,
    }  # fmt: skip
    clock.advance(10)
    context.progress(unit="rows", done=200, total=1_000)
    shown = bench.job(job_id).progress
    assert shown is not None
    assert (shown["fraction"], shown["rate_per_s"]) == (0.2, 20.0)
    clock.advance(40)
    assert shown["eta"] == instant_text(clock.now())
    assert [event.type for event in bench.events(job_id)] == ["state", "state", "progress", "progress"]


def test_progress_is_written_at_most_once_in_its_interval_and_soon_in_the_beginning(
    sqlite_bench: Workbench,
) -> None:
    bench, clock = sqlite_bench, sqlite_bench.clock
    assert isinstance(clock, FakeClock)
    job_id = bench.submit()
    context = bench.context()
    for done in range(500):
        context.progress(unit="rows", done=done, total=None)
        clock.advance(0.01)
    context.progress(unit="rows", done=500, total=None, force=True)
    written = [event.data["done"] for event in bench.events(job_id) if event.type == "progress"]
    assert written == [0, 13, 26, 39, 52, 65, 82, 103, 129, 162, 203, 253, 303, 353, 403, 453, 500]


def test_paused_time_is_in_no_rate(sqlite_bench: Workbench) -> None:
    # "What peers do badly: an ETA that counts paused time."
    bench, clock = sqlite_bench, sqlite_bench.clock
    assert isinstance(clock, FakeClock)
    job_id = bench.submit()
    first = bench.context()
    first.progress(unit="rows", done=0, total=1_000)
    clock.advance(10)
    first.progress(unit="rows", done=500, total=1_000, force=True)
    assert bench.job(job_id).active_s == pytest.approx(10)
    bench.set(job_id, state="PAUSED", lease_instance=None, unproven=False)
    clock.advance(86_400)
    bench.do(request_resume, job_id)
    second = bench.context()
    second.progress(unit="rows", done=500, total=1_000)
    clock.advance(10)
    second.progress(unit="rows", done=600, total=1_000)
    job = bench.job(job_id)
    assert job.progress is not None
    assert job.progress["rate_per_s"] == 10.0
    assert job.active_s == pytest.approx(20)


def test_progress_of_a_resumed_job_never_goes_back(sqlite_bench: Workbench) -> None:
    # A resumed purge counts finished windows only: its first report fell from 86,676 rows to 20,280.
    bench = sqlite_bench
    job_id = bench.submit()
    bench.context().progress(unit="rows", done=500, total=1_000)
    bench.set(job_id, state="PAUSED", lease_instance=None, unproven=False)
    bench.do(request_resume, job_id)
    second = bench.context()
    seen = []
    for done in (300, 450, 600):
        second.progress(unit="rows", done=done, total=1_000, force=True)
        shown = bench.job(job_id).progress
        assert shown is not None
        seen.append(shown["done"])
    assert seen == [500, 500, 600]


def test_estimate_grows_with_what_is_done(sqlite_bench: Workbench) -> None:
    job_id = sqlite_bench.submit()
    context = sqlite_bench.context()
    context.progress(unit="rows", done=120, total=100, total_is_estimate=True)
    shown = sqlite_bench.job(job_id).progress
    assert shown is not None
    assert (shown["total"], shown["fraction"]) == (120, 1.0)


def test_stronger_cause_outranks_the_weaker_and_never_back(sqlite_bench: Workbench) -> None:
    sqlite_bench.submit()
    context = sqlite_bench.context()
    assert stopped_by(context.check) is None
    seen = []
    for cause in (
        StopCause.SUSPEND,
        StopCause.ABORT,
        StopCause.PAUSE,
        StopCause.SHUTDOWN,
        StopCause.LEASE_LOST,
    ):
        context.signal(cause)
        seen.append(stopped_by(context.check))
    assert seen == ["SUSPEND", "ABORT", "ABORT", "ABORT", "LEASE_LOST"]
    with pytest.raises(LeaseLost):
        context.check()


def test_abort_ends_the_blocked_statement_at_once_and_a_pause_does_not(sqlite_bench: Workbench) -> None:
    sqlite_bench.submit()
    context = sqlite_bench.context()
    ended: list[str] = []
    forget = context.on_cancel(lambda: ended.append("cancelled"))
    context.signal(StopCause.PAUSE)
    assert ended == []
    context.signal(StopCause.ABORT)
    assert ended == ["cancelled"]
    forget()
    context.cancel_statements()
    assert ended == ["cancelled"]


def test_throttle_changes_while_the_job_runs(bench: Workbench) -> None:
    seen: list[float | None] = []

    def task(context: JobContext) -> Mapping[str, Any]:
        while context.throttle.setting.rows_per_s != 7:
            context.check()
            time.sleep(0.005)
        seen.append(context.throttle.setting.rows_per_s)
        return {}

    with bench.running(kind(task)) as runner:
        job_id = bench.submit(throttle=ThrottleSetting(rows_per_s=5000))
        bench.until(job_id, "RUNNING")
        bench.do(
            lambda db, job_id, **who: set_throttle(db, job_id, ThrottleSetting(rows_per_s=7), **who), job_id
        )
        runner.wake()
        bench.until(job_id, "SUCCEEDED")
    assert seen == [7]
    assert "throttle" in [event.type for event in bench.events(job_id)]


def test_ended_job_takes_no_throttle(bench: Workbench) -> None:
    job_id = bench.put("SUCCEEDED")  # type: ignore[arg-type]
    with pytest.raises(Exception, match="ended") as refused, bench.database.transaction() as db:
        set_throttle(db, job_id, ThrottleSetting(), now=bench.clock.now(), actor="ann")
    assert (refused.value.status, refused.value.code) == (409, "JOB_ENDED")


class AwayForAWhile(Database):
    """A metadata database that cannot be reached for the next so many transactions."""

    away = 0

    @contextmanager
    def transaction(self, *, is_news: bool = True) -> Iterator[Session]:
        if self.away > 0:
            self.away -= 1
            raise MetadataUnavailable("connection refused")
        with super().transaction(is_news=is_news) as db:
            yield db


@pytest.mark.parametrize(("away", "outlasts"), [(100, True), (10_000, False)])
def test_metadata_that_is_away_is_waited_for_as_long_as_the_lease_is_sure(
    sqlite_bench: Workbench, clock: FakeClock, away: int, outlasts: bool
) -> None:
    database = AwayForAWhile(str(sqlite_bench.database.url), clock=clock)
    bench = Workbench(database, clock, sqlite_bench.settings)
    job_id = bench.submit()
    context = bench.context()
    database.away = away
    began = clock.boottime_s()
    if outlasts:
        context.save_checkpoint("units", {"done": 1})
        assert bench.checkpoint(job_id, "units") == {"done": 1}
    else:
        with pytest.raises(LeaseLost):
            context.save_checkpoint("units", {"done": 1})
        waited = clock.boottime_s() - began
        assert bench.settings.lease_self_stop_s < waited <= bench.settings.lease_self_stop_s + 1
    database.close()


def terminate_backends(url: str) -> int:
    engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        rows = connection.execute(
            sa.text(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()"
            )
        ).all()
    return len(rows)


def test_job_goes_on_when_its_metadata_connections_are_ended(
    postgresql_bench: Workbench, migrated_postgresql: str
) -> None:
    bench = postgresql_bench
    under_way, ended = threading.Event(), threading.Event()

    def task(context: JobContext) -> Mapping[str, Any]:
        for done in range(60):
            context.check()
            context.save_checkpoint("units", {"done": done}, advanced=True)
            under_way.set()
            if done == 30:
                ended.wait(10)
        return {"done": 60}

    with bench.running(kind(task)) as runner:
        job_id = bench.submit()
        assert under_way.wait(10)
        for _ in range(5):
            terminate_backends(migrated_postgresql)
            time.sleep(0.05)
        ended.set()
        job = _until_despite(bench, job_id)
        assert runner.is_alive
    assert (job.state, job.result, job.attempt, job.crash_count) == ("SUCCEEDED", {"done": 60}, 1, 0)
    assert [event.seq for event in bench.events(job_id)] == list(range(1, job.event_seq + 1))


def _until_despite(bench: Workbench, job_id: str) -> Any:
    for _ in range(3):
        try:
            return bench.until(job_id, "SUCCEEDED", "FAILED")
        except MetadataUnavailable:
            continue
    raise AssertionError("the metadata stays away")


def test_connection_that_dies_inside_a_transaction_is_a_typed_error(
    postgresql_bench: Workbench, migrated_postgresql: str
) -> None:
    bench = postgresql_bench
    job_id = bench.submit()

    def cut_in_two(db: Session) -> None:
        db.execute(sa.text("update jobs set reason = 'half'"))
        terminate_backends(migrated_postgresql)
        db.execute(sa.text("update jobs set reason = 'whole'"))

    with pytest.raises(MetadataUnavailable), bench.database.transaction() as db:
        cut_in_two(db)
    assert bench.job(job_id).reason is None
    with bench.running(kind(finish)):
        bench.until(job_id, "SUCCEEDED")


def test_stop_during_a_pause_is_told_once(bench: Workbench) -> None:
    with bench.running(kind(work_until_stopped)) as runner:
        job_id = bench.submit()
        bench.until(job_id, "RUNNING")
        for _ in range(3):
            bench.do(request_pause, job_id)
        runner.wake()
        bench.until(job_id, "PAUSED")
    assert bench.states_seen(job_id).count("PAUSING") == 1
    assert stopped_by(lambda: (_ for _ in ()).throw(JobStopped(StopCause.PAUSE))) == "PAUSE"
