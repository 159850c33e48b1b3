"""How long a NATIVE cleanup waits for sessions from before a switch."""

from __future__ import annotations

from typing import Any

import pytest

from app.db import Database
from app.events.cleanup.loop import Cleanup
from app.events.cleanup.native_call import WRITERS_LOOK_AGAIN, WRITERS_WAIT_MAX, _wait_for_writers
from app.jobs.errors import JobFailed, JobWaiting
from app.settings import Settings
from spark.events.cleaning.errors import LogStillWritten
from spark.events.cleaning.records import Session
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench

WRITER = Session(
    pid=77,
    application_name="the shop",
    user="ann",
    state="active",
    age_s=3.0,
    backend_xid=9,
    backend_xmin=9,
    has_lock=False,
    is_older=True,
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cleanup(database: Database, settings: Settings, clock: FakeClock) -> Cleanup:
    jobs = Workbench(database, clock, settings)
    jobs.submit()
    nothing: Any = None
    return Cleanup(jobs.context(), nothing, nothing, nothing, nothing, clock.now())


@pytest.mark.parametrize(
    ("writers", "ref"),
    [
        ([WRITER], "pid 77 (the shop) of ann, active, for 3 s"),
        ([], "sessions may still write"),
    ],
)
def test_they_are_named_and_looked_at_again(
    cleanup: Cleanup, clock: FakeClock, writers: list[Session], ref: str
) -> None:
    found = _wait_for_writers(cleanup, LogStillWritten("sessions may still write", writers))
    assert isinstance(found, JobWaiting)
    assert [(item.kind, item.ref) for item in found.waiting_on] == [("OLD_TRANSACTION", ref)]
    assert found.not_before == clock.now() + WRITERS_LOOK_AGAIN


def test_at_last_the_job_fails_and_may_be_tried_again(cleanup: Cleanup, clock: FakeClock) -> None:
    error = LogStillWritten("sessions may still write", [WRITER])
    assert isinstance(_wait_for_writers(cleanup, error), JobWaiting)
    clock.advance(WRITERS_WAIT_MAX.total_seconds())
    assert isinstance(_wait_for_writers(cleanup, error), JobWaiting)
    clock.advance(1)
    found = _wait_for_writers(cleanup, error)
    assert isinstance(found, JobFailed)
    assert (found.code, found.retryable) == ("UNCONFIRMED_WOULD_GO", True)
    assert found.detail == "sessions may still write; waited 0:10:00 for them"
