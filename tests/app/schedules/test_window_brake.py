"""Windows and the runner: jobs rest, go on by themselves, go slower, and say so."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.jobs.running.context import JobContext
from app.jobs.running.openings import Opening
from app.jobs.service import request_abort
from app.jobs.states import JobState
from app.schedules.scheduler import Scheduler
from app.schedules.windows.brake import WindowBrake
from app.schedules.windows.models import WindowCreate
from app.schedules.windows.rows import Window
from app.schedules.windows.service import create_window, remove_window
from app.settings import Settings
from app.sweeps.turns import Turns
from app.verbs.table import VERBS, obeys_windows
from tests.app.jobs.workbench import Workbench, kind
from tests.app.schedules.schedules_bench import SchedulesBench, WallClock, hang

NIGHT = {"cron": "0 22 * * *", "duration": "PT8H"}
ANN = Caller("tok_a", "ann", frozenset({Scope.ADMIN}), None)
NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


class Wall:
    """The wall may be set; time passes as it does, so that a runner works."""

    def __init__(self, at: datetime) -> None:
        self.set(at)

    def set(self, at: datetime) -> None:
        self._ahead = at - datetime.now(UTC)

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def boottime_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


@pytest.fixture
def wall() -> Wall:
    return Wall(NOON)


@pytest.fixture
def jobs(sqlite_database: Database, settings: Settings, wall: Wall) -> Workbench:
    bench = SchedulesBench(sqlite_database, settings, WallClock())
    bench.store(labels={"tier": "gold"})
    hang(wall, sqlite_database)
    return Workbench(sqlite_database, wall, settings)


def window(jobs: Workbench, **fields: Any) -> Window:
    request = WindowCreate.model_validate(NIGHT | fields)
    with jobs.database.transaction() as db:
        return create_window(db, request, caller=ANN, now=jobs.clock.now())


def brake(jobs: Workbench) -> WindowBrake:
    return WindowBrake(jobs.database, jobs.clock, is_held=lambda _kind, _params: True)


def count_units(context: JobContext) -> Mapping[str, Any]:
    """Units of a sweep, as its loop draws them."""
    done = (context.checkpoint("units") or {}).get("done", 0)
    turns = Turns(context, keep=lambda: None)
    while done < 10_000:
        if not turns.wait(0, rest_s=lambda: 0.0):
            context.check()
        time.sleep(0.002)
        done += 1
        context.throttle.charge(rows=1, byte_count=0, worked_s=0.002)
        context.save_checkpoint("units", {"done": done})
        if context.job.params.get("enough", 10_000) <= done:
            break
    return {"done": done}


def running(jobs: Workbench, **more: Any) -> Any:
    return jobs.runner(kind(count_units), clock=jobs.clock, openings=brake(jobs), **more)


def test_job_waits_outside_of_allow_begins_by_itself_and_pauses_again(jobs: Workbench, wall: Wall) -> None:
    made = window(jobs, kind="ALLOW")
    job_id = jobs.submit()
    runner = running(jobs)
    runner.start()
    try:
        row = jobs.until(job_id, JobState.WAITING)
        [held] = row.waiting_on
        opens = "2026-11-23T22:00:00Z"
        assert (held["kind"], held["until"]) == ("WINDOW", opens)
        assert held["ref"] == f"outside of every ALLOW window, until {opens}"
        assert row.lease_instance is None
        wall.set(datetime(2026, 11, 23, 22, 0, 1, tzinfo=UTC))
        jobs.until(job_id, JobState.RUNNING)
        deadline = time.monotonic() + 10
        while jobs.checkpoint(job_id, "units") is None and time.monotonic() < deadline:
            time.sleep(0.02)
        wall.set(datetime(2026, 11, 24, 6, 0, 1, tzinfo=UTC))
        row = jobs.until(job_id, JobState.WAITING)
        assert row.waiting_on[0]["until"] == "2026-11-24T22:00:00Z"
        done = jobs.checkpoint(job_id, "units")
        assert done is not None
        assert 0 < done["done"] < 10_000
        time.sleep(0.3)
        assert jobs.checkpoint(job_id, "units") == done
        with jobs.database.transaction() as db:
            remove_window(db, made.id, now=wall.now())
        jobs.until(job_id, JobState.RUNNING)
    finally:
        assert runner.stop(10)


def test_deny_of_another_label_holds_nothing_and_of_this_one_does(jobs: Workbench) -> None:
    day = {"cron": "0 8 * * *", "duration": "PT10H", "kind": "DENY"}
    window(jobs, **day, labels={"tier": "iron"})
    held = brake(jobs)
    job_id = jobs.submit()
    context = jobs.context()
    assert context.job.id == job_id
    assert held.of(context.job) is None
    made = window(jobs, **day, labels={"tier": "gold"})
    assert held.of(context.job, fresh=True) == Opening(0.0, made.id, datetime(2026, 11, 23, 18, tzinfo=UTC))


def test_intensity_between_slows_through_the_throttle_and_says_window(jobs: Workbench) -> None:
    window(jobs, kind="DENY", cron="0 8 * * *", duration="PT10H", intensity=0.2)
    job_id = jobs.submit(params={"enough": 40})
    runner = running(jobs)
    runner.start()
    try:
        jobs.until(job_id, JobState.RUNNING)
        deadline = time.monotonic() + 10
        while jobs.job(job_id).throttle_cause is None and time.monotonic() < deadline:
            time.sleep(0.01)
        row = jobs.job(job_id)
        assert row.throttle_cause == "WINDOW"
        assert row.throttle_effective is not None
        assert row.throttle_effective["intensity"] == 0.2
        assert row.throttle_requested is None
        jobs.until(job_id, JobState.SUCCEEDED)
    finally:
        assert runner.stop(10)


def test_abort_of_a_held_job_needs_no_window(jobs: Workbench) -> None:
    window(jobs, kind="ALLOW")
    job_id = jobs.submit()
    runner = running(jobs)
    runner.start()
    try:
        jobs.until(job_id, JobState.WAITING)
        jobs.do(request_abort, job_id)
        jobs.until(job_id, JobState.ABORTED)
    finally:
        assert runner.stop(10)


def test_eta_leaves_out_what_is_closed(jobs: Workbench) -> None:
    window(jobs, kind="DENY", cron="0 13 * * *", duration="PT3H")
    jobs.submit()
    context = jobs.context()
    held = brake(jobs)
    ends = held.finishes_at(context.job, NOON, work_s=2 * 3600)
    assert ends == NOON + timedelta(hours=5)


def test_every_verb_that_removes_is_held_and_nothing_else() -> None:
    held = {verb.kind for verb in VERBS if verb.obeys_windows}
    assert held == {"PURGE", "ERASURE", "EXTINCTION", "EVENT_CLEANUP", "LOG_SWITCH"}
    assert not obeys_windows("PLAN", {"plan": "ERASURE"})
    assert not obeys_windows("BATCH", {"kind": "PURGE", "params": {}})
    assert not obeys_windows("REPLICATION_SESSION", {})
    assert not obeys_windows("OF_A_LATER_VERSION", {})


def test_day_on_which_the_clocks_change_is_reckoned_from_the_wall(jobs: Workbench, wall: Wall) -> None:
    made = window(jobs, kind="DENY", cron="30 2 * * *", time_zone="Europe/Berlin", duration="PT2H")
    jobs.submit()
    context, held = jobs.context(), brake(jobs)
    # 2027-03-28: 02:30 is left out; the window begins after the gap, at 03:00, which is 01:00 in UTC.
    for minute, is_closed in ((-1, False), (1, True), (119, True), (121, False)):
        wall.set(datetime(2027, 3, 28, 1, 0, tzinfo=UTC) + timedelta(minutes=minute))
        found = held.of(context.job, fresh=True)
        assert (found is not None) is is_closed, minute
        assert found is None or found.ref == made.id


def test_clock_that_is_put_back_lets_a_held_job_look_again(jobs: Workbench, wall: Wall) -> None:
    window(jobs, kind="DENY", cron="0 11 * * *", duration="PT8H")
    scheduler = Scheduler(jobs.database, jobs.settings, wall)
    scheduler.look()
    job_id = jobs.submit()
    runner = running(jobs)
    runner.start()
    try:
        jobs.until(job_id, JobState.WAITING)
        wall.set(datetime(2026, 11, 23, 9, 0, tzinfo=UTC))
        scheduler.look()
        jobs.until(job_id, JobState.RUNNING)
    finally:
        assert runner.stop(10)
