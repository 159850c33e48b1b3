"""What needs somebody: what is new is seen among what is old, and all of it is counted."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from app.db import Database
from app.jobs.states import JobState
from app.settings import Settings
from app.stores.checks.rows import StoreHealth
from tests.app.fake_clock import FakeClock
from tests.app.fleet.test_overview import STATEMENTS_MAX, Fleet


@pytest.fixture
def fleet(database: Database, clock: FakeClock, settings: Settings) -> Fleet:
    return Fleet(database, clock, settings)


def test_what_failed_now_is_shown_before_forty_old_errors_and_all_are_counted(fleet: Fleet) -> None:
    # Forty unready stores, the oldest first, and a job that has failed just now was nowhere.
    now, hour = fleet.clock.now(), timedelta(hours=1)
    fleet.insert([fleet.store(f"s{number:03}") for number in range(130)])
    fleet.insert(
        [
            StoreHealth(
                store=f"s{number:03}", checked_at=now, trouble="X", trouble_since=now - hour, due_at=now
            )
            for number in range(130)
        ]
    )
    fleet.insert(
        [fleet.job(JobState.FAILED, finished_at=now - 2 * hour, error={"code": "OLD"}) for _ in range(50)]
    )
    waits = {"waiting_cause": "JOB", "waiting_since": now - 9 * hour}
    fleet.add(
        fleet.job(JobState.FAILED, finished_at=now, error={"code": "NEW"}),
        fleet.job(JobState.WAITING, **waits),
    )
    token = fleet.token()
    with fleet.statements() as seen:
        told = fleet.get("/v1/overview", token).json()
    assert len(seen) <= STATEMENTS_MAX, seen
    assert told["attention_counts"] == {"STORE_UNREADY": 130, "JOB_FAILED": 51, "WAITS_LONG": 1}
    assert (told["attention_total"], len(told["attention"])) == (182, 40)
    assert told["attention"][0]["detail"] == "NEW"
    assert told["attention"][-1]["code"] == "WAITS_LONG"  # no number of errors hides it
    all_failed = fleet.get("/v1/overview?attention_code=JOB_FAILED&attention_max=500", token).json()
    assert [each["detail"] for each in all_failed["attention"]] == ["NEW"] + ["OLD"] * 50
    assert all_failed["attention_counts"] == told["attention_counts"]


def test_queue_that_an_older_version_has_left_is_shown(fleet: Fleet) -> None:
    """While a service is updated, instances of both versions hand jobs back."""
    at = fleet.clock.now() - timedelta(days=9)
    fleet.add(
        fleet.job(JobState.QUEUED, updated_at=at),
        fleet.job(JobState.QUEUED),
        fleet.job(JobState.RUNNING, updated_at=at),
    )
    told = fleet.get("/v1/overview", fleet.token()).json()["attention"]
    shown = [(each["code"], each["detail"], datetime.fromisoformat(each["since"])) for each in told]
    assert shown == [("WAITS_LONG", "QUEUED", at)]
