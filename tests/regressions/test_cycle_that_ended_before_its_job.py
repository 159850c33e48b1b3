"""A crash between the end of a cycle and that of its job: the job ends then as its cycle did.

Such a job was requeued for ever, fifty times a second: its cycle had ended, and nobody had ordered an abort.
"""

from __future__ import annotations

import pytest

from app.jobs.errors import JobStopped, StopCause
from app.jobs.running import outcome
from app.jobs.running.context import JobContext
from spark.erase.calls.calls import Refusal, RefusalCode
from tests.app.erase.conftest import erasers, log  # noqa: F401 -- fixtures
from tests.app.erase.conftest import settings as settings
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import FakeLog
from tests.app.jobs.workbench import Workbench, kind

LEASE_OVER_S = 3_600.0


class Killed(BaseException):
    """The process ends here."""


def _killed(*_args: object, **_values: object) -> None:
    raise Killed


def _crash_at(monkeypatch: pytest.MonkeyPatch, erasers: Erasers, end: str) -> None:  # noqa: F811
    with monkeypatch.context() as patched:
        patched.setattr(outcome, end, _killed)
        with pytest.raises(Killed):
            erasers.attempt()
    assert erasers.job().state == "RUNNING"
    erasers.restart(away_s=LEASE_OVER_S)


def test_complete_cycle_has_its_job_succeed(
    erasers: Erasers,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    erasers.begin()
    _crash_at(monkeypatch, erasers, "succeed")
    assert erasers.cycle().state == "COMPLETE"
    assert erasers.attempt()
    job = erasers.job()
    assert job.state == "SUCCEEDED"
    assert job.result is not None
    assert job.result["state"] == "COMPLETE"
    assert job.result["files"] == {"ERASED": 2, "NOT_SELECTED": 1}
    assert len(erasers.cycles()) == 1


def test_cycle_at_its_end_has_its_job_succeed_with_what_remained(
    erasers: Erasers,  # noqa: F811
    log: FakeLog,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    erasers.begin(min_file_age="PT0S", duration="PT1000S")
    erasers.run(until_s=100)
    erasers.clock.advance(1_000)
    _crash_at(monkeypatch, erasers, "succeed")
    assert erasers.cycle().state == "INCOMPLETE"
    assert erasers.attempt()
    job = erasers.job()
    assert job.state == "SUCCEEDED"
    assert job.result is not None
    assert (job.result["state"], job.result["remaining"]) == ("INCOMPLETE", erasers.cycle().files_remaining)


def test_failed_cycle_has_its_job_fail_by_the_same_code(
    erasers: Erasers,  # noqa: F811
    log: FakeLog,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = Refusal(RefusalCode.LOG_REFUSED, "LOG_CHECKSUM_WRONG: it is 1", "LOG_CHECKSUM_WRONG", "0.jdb", 7)
    log.refuse("plan", -1, broken)
    erasers.begin()
    _crash_at(monkeypatch, erasers, "fail")
    assert erasers.cycle().state == "FAILED"
    assert erasers.attempt()
    error = erasers.job().error
    assert erasers.job().state == "FAILED"
    assert error is not None
    assert error["code"] == "LOG_CHECKSUM_WRONG"
    assert "0.jdb, offset 7" in error["detail"]


def test_task_that_stops_by_itself_fails_and_is_not_begun_for_ever(bench: Workbench) -> None:
    def stops(_context: JobContext) -> dict[str, object]:
        raise JobStopped(StopCause.ABORT)

    with bench.running(kind(stops)):
        job = bench.until(bench.submit(), "FAILED")
    assert job.attempt == 1
    assert job.error is not None
    assert job.error["code"] == "INTERNAL"
