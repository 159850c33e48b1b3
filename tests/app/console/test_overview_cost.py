"""What the console's overview costs, however large the fleet is."""

from __future__ import annotations

import time

import pytest
import sqlalchemy as sa

from app.auth.scopes import Role
from app.backups.rows import BackupSession
from app.db import Database
from app.jobs.rows import Job
from app.settings import Settings
from app.stores.checks.rows import StoreHealth
from app.stores.rows import Store
from app.sweeps.rows import SweepTick
from tests.app.console.browser import Browser
from tests.app.fake_clock import FakeClock
from tests.app.fleet.test_overview import BYTES_MAX, STATEMENTS_MAX, Fleet, crowd


@pytest.fixture
def fleet(database: Database, clock: FakeClock, settings: Settings) -> Fleet:
    return Fleet(database, clock, settings)


@pytest.fixture
def browser(fleet: Fleet) -> Browser:
    browser = Browser(fleet.app)
    assert browser.login(fleet.token(Role.ADMIN)).status_code == 303
    return browser


def test_page_takes_few_statements_and_bytes(fleet: Fleet, browser: Browser) -> None:
    crowd(fleet, 60, 1_200)
    with fleet.statements() as seen:
        answer = browser.get("/console/")
    assert answer.status_code == 200
    assert len(seen) <= STATEMENTS_MAX, seen
    assert len(answer.content) <= BYTES_MAX


@pytest.mark.long
def test_page_of_500_stores_takes_at_most_three_times_that_of_five(fleet: Fleet, browser: Browser) -> None:
    def measured() -> float:
        times = []
        for _ in range(15):
            begun = time.perf_counter()
            assert browser.get("/console/").status_code == 200
            times.append(time.perf_counter() - begun)
        return sorted(times)[len(times) // 2]

    crowd(fleet, 5, 100)
    few_s = measured()
    with fleet.database.transaction() as db:
        for table in (StoreHealth, SweepTick, BackupSession, Job, Store):
            db.execute(sa.delete(table))
    crowd(fleet, 500, 10_000)
    with fleet.statements() as seen:
        answer = browser.get("/console/")
    many_s = measured()
    print(f"{len(seen)} statements, {len(answer.content)} bytes, {few_s * 1e3:.1f} -> {many_s * 1e3:.1f} ms")
    assert len(seen) <= STATEMENTS_MAX
    assert len(answer.content) <= BYTES_MAX
    assert many_s <= 3 * few_s
