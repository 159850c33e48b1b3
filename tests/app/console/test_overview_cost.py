"""What the console's overview costs, however large the fleet is."""

from __future__ import annotations

import time

import pytest
import sqlalchemy as sa

from app.backups.rows import BackupSession
from app.figures.sums import Name, count
from app.jobs.rows import Job
from app.stores.checks.rows import StoreHealth
from app.stores.rows import Store
from app.sweeps.rows import SweepTick
from tests.app.console.browser import Browser
from tests.app.fleet.test_overview import BYTES_MAX, STATEMENTS_MAX, Fleet, crowd


def test_page_takes_few_statements_and_bytes(fleet: Fleet, browser: Browser) -> None:
    crowd(fleet, 60, 300)
    with fleet.statements() as seen:
        answer = browser.get("/console/")
    assert answer.status_code == 200
    assert len(seen) <= STATEMENTS_MAX, seen
    assert len(answer.content) <= BYTES_MAX


def test_page_of_a_store_shows_what_its_check_found_and_how_far_it_is_behind(
    fleet: Fleet, browser: Browser
) -> None:
    now = fleet.clock.now()
    found = [
        {"code": "TARGET_UNREACHABLE", "severity": "ERROR", "detail": "nobody answers at <b>db</b>"},
        {"code": "CLOCK_APART", "severity": "WARNING", "detail": "4 s apart"},
    ]
    health = {"trouble": "TARGET_UNREACHABLE", "trouble_since": now, "warnings": 1, "findings": found}
    fleet.add(fleet.store("shop"), StoreHealth(store="shop", checked_at=now, due_at=now, **health))
    with fleet.database.transaction() as db:
        count(db, Name.SLONY_LAG_EVENTS, "1", "2", store="shop", value=12.0, now=now)
        count(db, Name.SLONY_LAG_SECONDS, "1", "2", store="shop", value=90.0, now=now)
    text = browser.get("/console/stores/shop").text
    assert "nobody answers at &lt;b&gt;db&lt;/b&gt;" in text
    assert "4 s apart" in text
    assert "Furthest behind: node 2 behind 1, by 1 min 30 s, 12 events." in text
    listed = fleet.get("/v1/overview", fleet.token()).json()["stores"][0]["health"]
    assert (listed["findings"], listed["details"]) == (["TARGET_UNREACHABLE", "CLOCK_APART"], [])


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
