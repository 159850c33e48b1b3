"""Schedules at their edges: locks of others, metadata that was away, verbs that come by a cron."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from app.db import Database
from app.errors import MetadataUnavailable
from app.schedules.rows import Schedule
from app.schedules.scheduler import Scheduler
from app.settings import Settings
from app.stores.service import get_store, remove_store
from tests.app.schedules.schedules_bench import BEGIN, SchedulesBench, WallClock

DEADLINE_S = 30.0


def is_somebody_blocked(engine: sa.Engine) -> bool:
    waits = "wait_event_type = 'Lock' and datname = current_database()"
    with engine.connect() as connection:
        found = connection.execute(sa.text(f"select count(*) from pg_stat_activity where {waits}"))
        return bool(found.scalar_one())


@pytest.mark.postgresql
def test_a_store_that_goes_as_its_schedule_fires_makes_no_deadlock(
    postgresql_database: Database, settings: Settings
) -> None:
    bench = SchedulesBench(postgresql_database, settings, WallClock())
    bench.store()
    bench.write(bench.caller())
    bench.clock.set(BEGIN + timedelta(minutes=10))
    made: list[list[str]] = []
    firing = threading.Thread(target=lambda: made.append(bench.look()))
    with capture_logs() as logs, postgresql_database.transaction() as db:
        get_store(db, "shop", lock=True)
        firing.start()
        deadline = time.monotonic() + DEADLINE_S
        while firing.is_alive() and not is_somebody_blocked(postgresql_database.engine):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        remove_store(
            db, "shop", if_match="*", active_jobs=0, now=bench.clock.now()
        )  # takes its schedules with it
        db.commit()
        firing.join(DEADLINE_S)
    assert made == [[]]
    assert [each for each in logs if each["log_level"] != "info"] == []  # nothing failed and was made again
    assert bench.jobs() == []


def away(bench: SchedulesBench, monkeypatch: pytest.MonkeyPatch, minutes: int) -> None:
    """Let the metadata be away for so long, while the service looks again and again."""

    def fail() -> Any:
        raise MetadataUnavailable("away")

    monkeypatch.setattr(bench.database, "reading", fail)
    monkeypatch.setattr(bench.database, "transaction", fail)
    for _ in range(2 * minutes):
        bench.clock.advance(30)
        with pytest.raises(MetadataUnavailable):
            bench.scheduler.look()
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("minutes", "missed", "outcome"),
    [
        (50, "SKIP", "SUBMITTED"),  # within the hour it is made up, late as it is
        (180, "SKIP", "SKIPPED_MISSED"),
        (180, "RUN_ONCE", "SUBMITTED"),
    ],
)
def test_what_came_while_the_metadata_was_away_for_long_is_missed(
    bench: SchedulesBench, monkeypatch: pytest.MonkeyPatch, minutes: int, missed: str, outcome: str
) -> None:
    bench.store()
    row = bench.write(bench.caller(), cron="5 10 * * *", missed=missed)
    bench.look()
    away(bench, monkeypatch, minutes)
    bench.look()
    shown = bench.row(row)
    assert (shown.last_outcome, shown.last_due) == (outcome, BEGIN + timedelta(minutes=5))


def test_how_late_a_schedule_may_be_is_a_setting(
    bench: SchedulesBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.scheduler.settings = bench.settings.model_copy(update={"schedules_late_s": 6 * 3600.0})
    bench.store()
    row = bench.write(bench.caller(), cron="5 10 * * *")
    bench.look()
    away(bench, monkeypatch, 180)
    bench.look()
    assert bench.row(row).last_outcome == "SUBMITTED"


def test_a_process_that_slept_was_not_there(bench: SchedulesBench) -> None:
    bench.store()
    row = bench.write(bench.caller(), cron="5 10 * * *")
    bench.look()
    bench.clock.advance(50 * 60)  # of boot time too: nobody looked
    bench.look()
    assert bench.row(row).last_outcome == "SKIPPED_MISSED"


@pytest.mark.parametrize("ahead_s", [-90.0, 90.0])
def test_an_instance_whose_own_clock_is_wrong_fires_in_time(bench: SchedulesBench, ahead_s: float) -> None:
    """The due times of all instances are those of the metadata's clock."""
    bench.store()
    row: Schedule = bench.write(bench.caller())
    own = WallClock(bench.clock.now() + timedelta(seconds=ahead_s))
    instance = Scheduler(bench.database, bench.settings, own)
    for seconds, made in ((599, 0), (1, 1)):
        bench.clock.advance(seconds)
        own.advance(seconds)
        assert len(instance.look()) == made
    assert bench.row(row).last_due == BEGIN + timedelta(minutes=10)
