"""The recurring purge of tombstones: nothing unasked, and beside a trimming each by its own interval."""

from __future__ import annotations

import pytest
from sqlmodel import select

from app.db import Database
from app.jobs.rows import Job
from app.replication.tombstones.tick import TOMBSTONE_INTERVAL, tombstone_tick_once
from app.replication.trimming.tick import INTERVAL, trim_tick_once
from app.settings import Settings
from tests.app.fake_clock import FakeClock
from tests.app.replication.test_trim_tick import NOON, _add


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


def test_a_store_has_its_tombstones_purged_once_in_its_interval(
    database: Database, settings: Settings, clock: FakeClock
) -> None:
    _add(database, "plain")
    _add(database, "asked", parameters={TOMBSTONE_INTERVAL: "P1D", INTERVAL: "PT1H"})
    assert len(trim_tick_once(database, settings, now=clock.now())) == 1
    [first] = tombstone_tick_once(database, settings, now=clock.now())
    with database.reading() as db:
        job = db.exec(select(Job).where(Job.id == first)).one()
    assert (job.kind, job.store, job.params["kind"], job.params["retention"]) == (
        "PURGE",
        "asked",
        "TOMBSTONES",
        "P7D",
    )
    assert job.reason == f"{TOMBSTONE_INTERVAL} is P1D"
    clock.advance(7_200)
    assert tombstone_tick_once(database, settings, now=clock.now()) == []
