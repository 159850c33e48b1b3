"""api.md, Jobs: WAITING holds neither lease nor thread, wakes at a time or by an event; retries back off."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from app.jobs.errors import JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.running import outcome
from app.jobs.running.context import JobContext
from app.jobs.running.suspension import store_key, suspended_wait
from app.jobs.service import request_abort, request_pause, wake
from app.jobs.states import JobState
from tests.app.jobs.workbench import Workbench, kind, work_until_stopped


def waits(until: datetime | None, key: str | None = None) -> JobWaiting:
    return JobWaiting([WaitingOn(kind="JOB", ref="job_x", until=until)], not_before=until, wake_key=key)


def test_waiting_job_holds_nothing_and_says_for_what(bench: Workbench) -> None:
    until = (bench.clock.now() + timedelta(hours=20)).replace(microsecond=0)

    def task(_context: JobContext) -> Mapping[str, Any]:
        raise waits(until)

    with bench.running(kind(task)):
        job_id = bench.submit()
        job = bench.until(job_id, "WAITING")
    assert (job.lease_instance, job.lease_expires_at, job.not_before) == (None, None, until)
    shown = {"kind": "JOB", "ref": "job_x", "until": until.isoformat().replace("+00:00", "Z")}
    assert job.waiting_on == [shown]
    assert job.unproven is False  # silence was proved before it went to rest


def test_wait_without_proof_stays_unproven(bench: Workbench) -> None:
    def task(_context: JobContext) -> Mapping[str, Any]:
        raise waits(None)

    def prove(_context: JobContext) -> None:
        raise JobWaiting([], not_before=None, detail="still running")

    with bench.running(kind(task, prove)):
        job_id = bench.submit()
        assert bench.until(job_id, "WAITING").unproven is True
    assert bench.do(request_pause, job_id).state == "PAUSING"


def test_proven_wait_is_paused_and_aborted_at_once(bench: Workbench) -> None:
    for ask, end in ((request_pause, "PAUSED"), (request_abort, "ABORTED")):
        job_id = bench.submit()
        outcome.wait(bench.context(), waits(None), proven=True)
        assert bench.do(ask, job_id).state == end


def test_event_wakes_those_who_wait_for_it_and_no_others(bench: Workbench) -> None:
    with bench.database.reading() as db:
        later = bench.database.now(db) + timedelta(days=1)
    wanted = bench.put(JobState.WAITING, wake_key="claim:a:sym", not_before=later)
    timeless = bench.put(JobState.WAITING, wake_key="claim:a:sym", not_before=None)
    bench.put(JobState.WAITING, wake_key="claim:a:other", not_before=later)
    bench.put(JobState.PAUSED, wake_key="claim:a:sym", not_before=later)
    assert bench.claim() is None
    with bench.database.transaction() as db:
        wake(db, "claim:a:sym", now=bench.database.now(db))
    assert [job.id for _ in range(3) if (job := bench.claim())] == [wanted, timeless]


def test_wake_changes_the_version_with_the_row(bench: Workbench) -> None:
    # api.md, Conditional: "strong ETag from the row version ... a representation changes only with its row".
    with bench.database.reading() as db:
        later = bench.database.now(db) + timedelta(days=1)
    job_id = bench.put(JobState.WAITING, wake_key="claim:a:sym", not_before=later)
    before = bench.job(job_id)
    with bench.database.transaction() as db:
        wake(db, "claim:a:sym", now=bench.database.now(db))
    after = bench.job(job_id)
    assert after.not_before != before.not_before
    assert after.version == before.version + 1


def transient(**more: Any) -> JobWaiting:
    waiting_on = [WaitingOn(kind="TARGET_UNREACHABLE", ref="shop")]
    return JobWaiting(waiting_on, not_before=None, transient=True, code="TARGET_UNREACHABLE", detail="away")


def test_retries_back_off_and_then_fail_with_the_cause(bench: Workbench) -> None:
    bench.settings.job_retries_max = 7
    bench.settings.job_retry_backoff_max_s = 30.0
    job_id = bench.submit()
    delays = []
    for number in range(7):
        outcome.wait(bench.context(), transient(), proven=False)
        job = bench.job(job_id)
        assert (job.state, job.retries) == ("WAITING", number + 1)
        delays.append(round((job.not_before - job.updated_at).total_seconds(), 1))
        bench.make_due(job_id)
    assert delays == [1, 2, 4, 8, 16, 30, 30]
    outcome.wait(bench.context(), transient(), proven=False)
    job = bench.job(job_id)
    shown = {"code": "TARGET_UNREACHABLE", "title": "Target unreachable", "detail": "away", "retryable": True}
    assert (job.state, job.error) == ("FAILED", shown)


@pytest.mark.parametrize(
    "gain",
    [
        lambda context: context.save_checkpoint("units", {}, advanced=True),
        lambda context: [context.progress(unit="rows", done=n, total=9, force=True) for n in (3, 4)],
    ],
    ids=["checkpoint", "progress"],
)
def test_attempt_that_gained_something_is_retried_as_if_for_the_first_time(bench: Workbench, gain) -> None:
    # The count was taken from the claim: progress of the attempt itself did not reset it, and a long job with
    # a shaky target failed after 30 retries however far it came between them.
    bench.settings.job_retries_max = 2
    job_id = bench.submit()
    for _ in range(5):
        context = bench.context()
        gain(context)
        outcome.wait(context, transient(), proven=False)
        job = bench.job(job_id)
        assert (job.state, job.retries) == ("WAITING", 1)
        assert round((job.not_before - job.updated_at).total_seconds()) == 1
        bench.make_due(job_id)


def test_plain_waits_are_no_retries(bench: Workbench) -> None:
    bench.settings.job_retries_max = 1
    job_id = bench.submit()
    for _ in range(4):
        outcome.wait(bench.context(), waits(None), proven=True)
        bench.make_due(job_id)
    assert (bench.state(job_id), bench.job(job_id).retries) == ("WAITING", 0)


def test_suspended_store_rests_its_running_job_and_resume_wakes_it(bench: Workbench) -> None:
    resting: dict[str, datetime | None] = {}
    with bench.running(kind(work_until_stopped), suspended=lambda _db: resting) as runner:
        job_id, other = bench.submit(store="shop"), bench.submit(store="calm")
        for running in (job_id, other):
            bench.until(running, "RUNNING")
        resting["shop"] = None
        runner.wake()
        job = bench.until(job_id, "WAITING")
        assert (job.waiting_on[0]["kind"], job.waiting_on[0]["ref"]) == ("STORE_SUSPENDED", "shop")
        assert (job.unproven, job.wake_key) == (False, store_key("shop"))
        assert bench.state(other) == "RUNNING"
        resting.clear()
        with bench.database.transaction() as db:
            wake(db, store_key("shop"), now=bench.database.now(db))
        runner.wake()
        bench.until(job_id, "RUNNING")
    assert bench.job(job_id).crash_count == 0


@pytest.mark.parametrize(
    ("until_s", "look_s"), [(None, 30), (10, 10), (3_600, 30)], ids=["open", "short", "long"]
)
def test_suspended_job_looks_again_by_itself(sqlite_bench: Workbench, until_s, look_s) -> None:
    now = sqlite_bench.clock.now()
    until = None if until_s is None else now + timedelta(seconds=until_s)
    waiting = suspended_wait("shop", now=now, until=until)
    assert waiting.not_before == now + timedelta(seconds=look_s)
    assert waiting.waiting_on == [WaitingOn(kind="STORE_SUSPENDED", ref="shop", until=until)]


def test_pause_of_a_suspended_running_job_wins(bench: Workbench) -> None:
    with bench.running(kind(work_until_stopped), suspended=lambda _db: {"shop": None}):
        job_id = bench.submit()
        bench.until(job_id, "WAITING")
        assert bench.do(request_pause, job_id).state == "PAUSED"
