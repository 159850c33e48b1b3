"""The frame of all sweeps: what fails a job, and what does not.

An event cleanup, a log switch and a trimming whose metadata went away between two steps FAILED with
METADATA_UNAVAILABLE; purges in the same place ended the attempt, and another one went on. Who takes the steps
of a sweep is looked at by tests/style/test_places.py.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from app.db import Database
from app.errors import Conflict, MetadataBusy, MetadataUnavailable, ServiceError
from app.jobs.errors import JobFailed, JobWaiting
from app.settings import Settings
from app.sweeps.cutoff import FutureCutoff, check_cutoff, fixed_instant
from app.sweeps.frame import beside_plan, refusals_fail
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


@pytest.mark.parametrize("away", [MetadataUnavailable("connection refused"), MetadataBusy("locked")])
def test_metadata_that_are_away_do_not_fail_a_sweep(away: ServiceError) -> None:
    with pytest.raises(type(away)), refusals_fail():
        raise away


def test_a_refusal_fails_it_with_the_code_that_a_client_would_have_got() -> None:
    with pytest.raises(JobFailed) as failed, refusals_fail():
        raise Conflict("the role may not delete", code="PERMISSION_MISSING")
    assert (failed.value.code, failed.value.detail) == ("PERMISSION_MISSING", "the role may not delete")


def test_signals_of_the_job_pass() -> None:
    with pytest.raises(JobWaiting), refusals_fail():
        raise JobWaiting([], not_before=None)


def test_a_cutoff_of_now_has_passed_and_a_later_one_has_not() -> None:
    check_cutoff(NOON, NOON)
    with pytest.raises(FutureCutoff) as refused:
        check_cutoff(NOON + timedelta(microseconds=1), NOON)
    assert (refused.value.code, refused.value.status) == ("FUTURE_CUTOFF", 422)


@pytest.mark.parametrize("first", [NOON, None])
def test_what_the_first_attempt_decided_holds_for_all(
    database: Database, settings: Settings, first: datetime | None
) -> None:
    jobs = Workbench(database, FakeClock(), settings)
    jobs.submit()
    context = jobs.context()
    decided: list[datetime | None] = [first, NOON + timedelta(days=1)]
    decide: Callable[[], datetime | None] = lambda: decided.pop(0)  # noqa: E731
    assert [fixed_instant(context, decide) for _ in range(3)] == [first] * 3
    assert context.checkpoint("cutoff") == {"at": None if first is None else first.isoformat()}
    assert len(decided) == 1


def test_rows_that_went_stand_beside_those_of_the_plan() -> None:
    assert beside_plan(None, None, 7) == {}
    assert beside_plan("job_1", {"data": 5, "data_event": 4}, 7) == {
        "plan_id": "job_1",
        "planned": {"data": 5, "data_event": 4},
        "fewer_than_planned": 2,
    }
