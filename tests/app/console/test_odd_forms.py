"""Forms and addresses that no page has made: refused in words, never a fault of the service."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from app.db import Database
from app.jobs.states import JobState
from app.settings import Settings
from tests.app.console.browser import Browser
from tests.app.fake_clock import FakeClock
from tests.app.fleet.test_overview import Fleet

FORM = "/console/stores/shop/acts/purge-rows"


@pytest.fixture
def fleet(database: Database, clock: FakeClock, settings: Settings) -> Fleet:
    fleet = Fleet(database, clock, settings)
    now = clock.now()
    shop = fleet.store("shop")
    shop.kind, shop.created_at = "SQL", now
    fleet.add(shop)
    return fleet


def test_request_in_an_address_that_is_no_request_is_refused(browser: Browser) -> None:
    for given in ("[" * 11_000, "{", "[]", "1" * 11_000):
        answer = browser.get(f"{FORM}?given={quote(given)}")
        assert answer.status_code == 400, answer.text
        assert "CONSOLE_FORM_INVALID" in answer.text


@pytest.mark.parametrize("value", [5, "x", {"a": 1}, [[1]], None, True, 1.5])
def test_request_in_an_address_may_have_fields_of_any_form(browser: Browser, value: object) -> None:
    names = ("table", "children", "retention_minutes", "throttle", "archive", "where", "cutoff")
    answer = browser.get(f"{FORM}?given={quote(json.dumps(dict.fromkeys(names, value)))}")
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "[" * 5_000, "1" * 5_000])
def test_number_that_is_none_is_told_at_its_field(browser: Browser, text: str) -> None:
    answer = browser.post(f"{FORM}:plan", table="orders", retention_minutes=text)
    assert answer.status_code == 422, answer.text
    assert "field-retention_minutes-fault" in answer.text


@pytest.mark.parametrize("key", ["€", "a b", "a\nb", "x" * 256, "\x7f"])
def test_key_that_cannot_stand_in_a_header_is_refused(browser: Browser, key: str) -> None:
    answer = browser.post("/console/stores/shop/suspend", key=key, reason="why")
    assert answer.status_code == 400, answer.text
    assert "CONSOLE_FORM_INVALID" in answer.text


@pytest.mark.parametrize("text", ["nan", "inf", "1e999", "-1", "0", "x", "1,000", "10,000,000"])
def test_throttle_is_a_number(fleet: Fleet, browser: Browser, text: str) -> None:
    job = fleet.job(JobState.PAUSED, params={"kind": "ROWS"})
    fleet.add(job)
    answer = browser.post(f"/console/jobs/{job.id}/throttle", rows_per_s=text, reason="why")
    assert answer.status_code == 422, answer.text


ODD_TIMES = ("PT", "P99999999999999D", "-PT1H", "PT1H\x01", "1 h", "PT1e9H", "٣")


@pytest.mark.parametrize("text", ODD_TIMES)
def test_duration_that_is_none_is_told_at_its_field(browser: Browser, text: str) -> None:
    fields = {"name": "w", "kind": "DENY", "cron": "0 3 * * *", "time_zone": "UTC", "reason": "why"}
    answer = browser.post("/console/windows/new", duration=text, **fields)
    assert answer.status_code == 422, answer.text
    assert "field-duration-fault" in answer.text
    answer = browser.post("/console/stores/shop/suspend", duration=text, reason="why")
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "UTC\x01", "utc ", "Europe", "a" * 3_000]
)
def test_time_zone_that_is_none_is_told_at_its_field(browser: Browser, zone: str) -> None:
    fields = {"name": "w", "kind": "DENY", "cron": "0 3 * * *", "duration": "PT1H", "reason": "why"}
    answer = browser.post("/console/windows/new", time_zone=zone, **fields)
    if zone.strip() != "utc":
        assert answer.status_code == 422, answer.text
        assert "field-time_zone-fault" in answer.text
    fields = {
        "name": "s",
        "verb": "PURGE",
        "body": "{",
        "cron": "* * 31 2 *",
        "reason": "why",
        "store": "shop",
    }
    answer = browser.post("/console/schedules/new", time_zone=zone, **fields)
    assert answer.status_code == 422, answer.text
