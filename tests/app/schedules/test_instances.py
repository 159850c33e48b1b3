"""Several instances over one database: each due time once, whatever dies in between."""

import os
import signal
import threading
import time
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlmodel import select

from app.db import Database
from app.schedules.rows import Schedule
from app.schedules.scheduler import Scheduler
from app.settings import Settings
from tests.app.schedules.schedules_bench import BEGIN, SchedulesBench, WallClock, hang

INSTANCES = 3


@pytest.mark.postgresql
def test_three_instances_fire_each_due_time_once(postgresql_database: Database, settings: Settings) -> None:
    clock = WallClock()
    bench = SchedulesBench(postgresql_database, settings, clock)
    ann = bench.caller()
    names = [bench.store(f"shop-{number}") for number in range(8)]
    written = [bench.write(ann, store=name, cron="* * * * *", missed="RUN_ONCE").id for name in names]
    databases = [Database(str(postgresql_database.url.render_as_string(False))) for _ in range(INSTANCES)]
    clocks = [WallClock() for _ in range(INSTANCES)]
    for own, each in zip(clocks, databases, strict=True):
        hang(own, each)
    instances = [Scheduler(each, settings, own) for each, own in zip(databases, clocks, strict=True)]
    minutes = 6
    for minute in range(1, minutes + 1):
        for number, own in enumerate(clocks):  # their clocks differ by some seconds
            own.set(BEGIN + timedelta(minutes=minute, seconds=number * 2))
        barrier = threading.Barrier(INSTANCES)

        def look(scheduler: Scheduler, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(10)
            for _ in range(3):
                scheduler.look()

        threads = [threading.Thread(target=look, args=(each,)) for each in instances]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        bench.end_jobs()
    for each in databases:
        each.close()
    fired = Counter((row.schedule_id, row.due_at) for row in bench.fired())
    assert set(fired.values()) == {1}
    assert set(fired) == {
        (name, BEGIN + timedelta(minutes=n)) for name in written for n in range(1, minutes + 1)
    }
    reasons = Counter(job.reason for job in bench.jobs())
    assert reasons == {f"schedule {name}": minutes for name in written}


def test_crash_at_every_statement_of_a_firing_loses_and_doubles_nothing(bench: SchedulesBench) -> None:
    bench.store()
    schedule = bench.write(bench.caller(), missed="RUN_ONCE")
    bench.clock.set(BEGIN + timedelta(hours=5))
    statements = 0

    class Crash(BaseException):
        pass

    for die_at in range(1, 200):
        statements = 0

        def count(*_: object, die_at: int = die_at) -> None:
            nonlocal statements
            statements += 1
            if statements == die_at:
                raise Crash

        event.listen(bench.database.engine, "before_cursor_execute", count)
        try:
            bench.scheduler.look()
        except Crash:
            assert bench.jobs() == []
            assert bench.fired(schedule) == []
            continue
        finally:
            event.remove(bench.database.engine, "before_cursor_execute", count)
        break
    assert statements > 8
    assert len(bench.jobs()) == 1
    [fired] = bench.fired(schedule)
    assert fired.due_at == BEGIN + timedelta(hours=5)
    assert bench.look() == []


def _fire_and_die(url: str, settings: Settings, at: datetime, die_after_s: float) -> None:
    """In a fork: look at schedules until SIGKILL comes in the middle."""
    timer = threading.Timer(die_after_s, lambda: os.kill(os.getpid(), signal.SIGKILL))
    timer.start()
    database = Database(url)
    clock = WallClock(at)
    hang(clock, database)
    scheduler = Scheduler(database, settings, clock)
    while True:
        scheduler.look()
        clock.advance(60)


@pytest.mark.parametrize("kills", [4, pytest.param(60, marks=pytest.mark.long)])
def test_killed_instances_fire_each_minute_once_at_most_and_run_once_makes_up(
    sqlite_database: Database, settings: Settings, kills: int
) -> None:
    bench = SchedulesBench(sqlite_database, settings, WallClock())
    sqlite_database.clock = bench.clock
    bench.store()
    schedule = bench.write(bench.caller(), cron="* * * * *", missed="RUN_ONCE", overlap="FORBID")
    url = str(sqlite_database.url)
    at = BEGIN
    for number in range(kills):
        sqlite_database.close()
        child = os.fork()
        if child == 0:
            _fire_and_die(url, settings, at, 0.05 + 0.013 * (number % 20))
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)
        fired = bench.fired(schedule)
        at = max((row.fired_at for row in fired), default=at) + timedelta(minutes=1)
    bench.look_at(at + timedelta(hours=1))
    fired = bench.fired(schedule)
    assert len({row.due_at for row in fired}) == len(fired)
    assert fired[-1].due_at == (at + timedelta(hours=1)).replace(second=0)
    submitted = [row.job_id for row in fired if row.outcome == "SUBMITTED"]
    assert sorted(str(name) for name in submitted) == sorted(job.id for job in bench.jobs())


def test_clock_that_is_put_back_an_hour_fires_nothing_twice(bench: SchedulesBench) -> None:
    bench.store()
    schedule = bench.write(bench.caller(), cron="*/15 * * * *")
    for quarter in range(1, 6):
        bench.look_at(BEGIN + timedelta(minutes=15 * quarter))
        bench.end_jobs()
    bench.clock.set(BEGIN + timedelta(minutes=15))
    for minute in range(60):
        bench.look_at(BEGIN + timedelta(minutes=15 + minute))
    assert len(bench.fired(schedule)) == 5
    bench.look_at(BEGIN + timedelta(minutes=90))
    assert len(bench.fired(schedule)) == 6


def test_clock_that_was_a_year_ahead_for_a_while_stops_no_schedule(bench: SchedulesBench) -> None:
    bench.store()
    schedule = bench.write(bench.caller(), missed="RUN_ONCE")
    bench.look_at(BEGIN + timedelta(days=365))
    bench.end_jobs()
    restarted = Scheduler(bench.database, bench.settings, bench.clock)
    bench.clock.set(BEGIN + timedelta(minutes=5))
    restarted.look()
    assert bench.row(schedule).next_due == BEGIN + timedelta(minutes=10)
    bench.clock.set(BEGIN + timedelta(minutes=10))
    assert len(restarted.look()) == 1


def test_clock_that_only_a_dead_instance_saw_ahead_stops_no_schedule(bench: SchedulesBench) -> None:
    """One instance looked while the clock was a year ahead, and died; the others saw nothing of that."""
    bench.store()
    schedule = bench.write(bench.caller())
    other = Scheduler(bench.database, bench.settings, bench.clock)
    other.look()
    bench.look_at(BEGIN + timedelta(days=365, minutes=3))
    bench.clock.set(BEGIN + timedelta(minutes=5))
    other.look()
    assert bench.row(schedule).next_due == BEGIN + timedelta(minutes=10)
    bench.clock.set(BEGIN + timedelta(minutes=10))
    assert len(other.look()) == 1


def test_looks_at_one_moment_take_the_clock_for_right(bench: SchedulesBench) -> None:
    """The times that two instances are told at one moment differ a little."""
    bench.store()
    schedule = bench.write(bench.caller())
    other = Scheduler(bench.database, bench.settings, bench.clock)
    other.look()
    bench.look_at(BEGIN + timedelta(minutes=10, milliseconds=400))
    reckoned_at = bench.row(schedule).reckoned_at
    bench.clock.set(BEGIN + timedelta(minutes=10))
    other.look()
    assert bench.row(schedule).reckoned_at == reckoned_at


@pytest.mark.alone
def test_idle_look_is_one_statement_by_an_index_however_many_there_are(bench: SchedulesBench) -> None:
    bench.store()
    first = bench.write(bench.caller())
    bench.look()
    took = {}
    for count in (100, 10_000):
        with bench.database.transaction() as db:
            have = len(db.exec(select(Schedule.id)).all())
            copied = first.model_dump(exclude={"id"})
            far = BEGIN + timedelta(days=1)
            rows = [
                copied | {"id": f"sch_{number:026}", "next_at": far + timedelta(seconds=number)}
                for number in range(have, count)
            ]
            db.execute(sa.insert(Schedule), rows)
            db.execute(sa.text("analyze"))
        statements: list[str] = []

        def noted(*args: Any, statements: list[str] = statements) -> None:
            statements.append(args[2])

        event.listen(bench.database.engine, "before_cursor_execute", noted)
        bench.look()
        event.remove(bench.database.engine, "before_cursor_execute", noted)
        assert [each for each in statements if "schedules" in each][1:] == []
        best = min(_timed(bench) for _ in range(20))
        took[count] = best
    assert took[10_000] < 2 * took[100] + 0.002
    assert bench.scheduler.rest_s == bench.settings.schedules_poll_s


def _timed(bench: SchedulesBench) -> float:
    began = time.perf_counter()
    bench.look()
    return time.perf_counter() - began
