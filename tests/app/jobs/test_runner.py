"""The runner at work: from the claim to the end, through orders, crashes and stops."""

import multiprocessing
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from app.errors import MetadataBusy, MetadataUnavailable, ServiceError
from app.jobs.errors import JobFailed, JobWaiting, LeaseLost
from app.jobs.models import WaitingOn
from app.jobs.rows import JobClass
from app.jobs.running import outcome
from app.jobs.running.context import JobContext
from app.jobs.running.orders import OrderDesk
from app.jobs.service import request_abort, request_pause, request_resume, wake
from app.jobs.states import JobState
from tests.app.jobs.workbench import Workbench, claimer, finish, in_threads, kind, work_until_stopped


def test_job_runs_to_its_result(bench: Workbench) -> None:
    with bench.running(kind(finish)):
        job_id = bench.submit(params={"n": 1})
        job = bench.until(job_id, "SUCCEEDED")
    assert job.result == {"echo": {"n": 1}}
    assert (job.lease_instance, job.unproven, job.finished_at is not None) == (None, False, True)
    assert bench.states_seen(job_id) == ["QUEUED", "RUNNING", "SUCCEEDED"]


def test_task_that_fails_shows_its_problem(bench: Workbench) -> None:
    def fail(_context: JobContext) -> Mapping[str, Any]:
        raise JobFailed("LIMIT_EXCEEDED", "12 of 10 rows", result={"rows": 12})

    with bench.running(kind(fail)):
        job = bench.until(bench.submit(), "FAILED")
    shown = {
        "code": "LIMIT_EXCEEDED",
        "title": "Limit exceeded",
        "detail": "12 of 10 rows",
        "retryable": False,
    }
    assert (job.error, job.result) == (shown, {"rows": 12})


def test_bug_in_a_task_fails_the_job_and_not_the_runner(bench: Workbench) -> None:
    def broken(context: JobContext) -> Mapping[str, Any]:
        if context.job.params.get("breaks"):
            raise ZeroDivisionError("the secret of the task")
        return {}

    with bench.running(kind(broken)) as runner:
        job = bench.until(bench.submit(params={"breaks": True}), "FAILED")
        bench.until(bench.submit(), "SUCCEEDED")
        assert runner.is_alive
    assert job.error is not None
    assert job.error["code"] == "INTERNAL"
    assert "secret" not in str(job.error)


def test_metadata_that_is_away_fails_no_job_whatever_its_task_takes_it_for(bench: Workbench) -> None:
    """Chaos: PostgreSQL was killed under a cleanup, and the job was FAILED for good by METADATA_UNAVAILABLE.

    Many tasks look at their store on their way, and turn every error of that into a failure of theirs.
    """
    attempts: list[int] = []

    def looks(context: JobContext) -> Mapping[str, Any]:
        attempts.append(context.job.attempt)
        if len(attempts) > 2:
            return {}
        bench.clock.sleep(1.0)  # the lease is over; PostgreSQL judges it by its own clock
        error = MetadataBusy() if len(attempts) == 1 else MetadataUnavailable("connection refused")
        try:
            raise error
        except ServiceError as found:
            raise JobFailed(found.code, found.detail) from found

    with bench.running(kind(looks), by=claimer(ttl_s=0.3)) as runner:
        job_id = bench.submit()
        for _ in range(1_000):
            if bench.state(job_id) == "SUCCEEDED":
                break
            if not runner._snapshot():  # the lease may have been renewed just before the attempt gave up
                bench.clock.sleep(0.4)
            time.sleep(0.02)
        job = bench.until(job_id, "SUCCEEDED")
    assert (attempts[:3], job.error) == ([1, 2, 3], None)


def test_pause_resume_and_abort_go_through_their_proof(bench: Workbench) -> None:
    proofs: list[str] = []

    def prove(context: JobContext) -> None:
        proofs.append(bench.state(context.job.id))

    with bench.running(kind(work_until_stopped, prove)) as runner:
        job_id = bench.submit()
        bench.until(job_id, "RUNNING")
        assert bench.do(request_pause, job_id).state == "PAUSING"
        runner.wake()
        paused = bench.until(job_id, "PAUSED")
        assert (paused.unproven, paused.lease_instance) == (False, None)
        bench.do(request_resume, job_id)
        runner.wake()
        bench.until(job_id, "RUNNING")
        assert bench.do(request_abort, job_id, reason="enough").state == "ABORTING"
        runner.wake()
        ended = bench.until(job_id, "ABORTED")
    assert (ended.reason, ended.attempt) == ("enough", 2)
    assert proofs == ["PAUSING", "ABORTING"]
    assert bench.states_seen(job_id) == [
        "QUEUED", "RUNNING", "PAUSING", "PAUSED", "QUEUED", "RUNNING", "ABORTING", "ABORTED",
    ]  # fmt: skip


def test_resume_while_it_is_pausing_lets_it_go_on(bench: Workbench) -> None:
    """A `:resume` during PAUSING left the job PAUSED, with its claim at the target, for ever."""
    pausing, resumed = threading.Event(), threading.Event()

    def prove(_context: JobContext) -> None:
        pausing.set()
        assert resumed.wait(10)

    with bench.running(kind(work_until_stopped, prove)) as runner:
        job_id = bench.submit()
        bench.until(job_id, "RUNNING")
        bench.do(request_pause, job_id)
        runner.wake()
        assert pausing.wait(10)
        assert bench.do(request_resume, job_id).state == "RUNNING"
        resumed.set()
        runner.wake()
        for _ in range(1_000):
            if bench.job(job_id).attempt == 2:
                break
            time.sleep(0.01)
        assert bench.until(job_id, "RUNNING").attempt == 2
        bench.do(request_abort, job_id)
        runner.wake()
        bench.until(job_id, "ABORTED")
    assert bench.states_seen(job_id) == [
        "QUEUED", "RUNNING", "PAUSING", "RUNNING", "QUEUED", "RUNNING", "ABORTING", "ABORTED",
    ]  # fmt: skip


def test_pause_that_comes_at_the_end_and_is_taken_back_lets_it_go_on(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody had told the task to stop: it was at its end. That is no task that stops by itself."""
    # the end is quicker than the look for orders
    monkeypatch.setattr(OrderDesk, "give", lambda _self, _held: None)

    def run(context: JobContext) -> Mapping[str, Any]:
        if context.job.attempt == 1:
            bench.do(request_pause, context.job.id)
        return {}

    def prove(context: JobContext) -> None:
        if bench.state(context.job.id) == "PAUSING":
            bench.do(request_resume, context.job.id)

    with bench.running(kind(run, prove)):
        job = bench.until(bench.submit(), "SUCCEEDED", "FAILED")
    assert (job.state, job.attempt) == ("SUCCEEDED", 2)


def test_resume_before_silence_is_proved_lets_it_go_on(bench: Workbench) -> None:
    tries = threading.Semaphore(0)

    def prove(_context: JobContext) -> None:
        tries.release()
        if tries_left:
            tries_left.pop()
            raise JobWaiting([], not_before=None, detail="still running at the target")

    tries_left = [1]
    with bench.running(kind(work_until_stopped, prove)) as runner:
        job_id = bench.submit()
        bench.until(job_id, "RUNNING")
        bench.do(request_pause, job_id)
        runner.wake()
        _until_waiting_on(bench, job_id)
        job = bench.do(request_resume, job_id)
        assert (job.state, job.unproven) == ("QUEUED", True)
        bench.make_due(job_id)
        runner.wake()
        bench.until(job_id, "RUNNING")
        bench.do(request_abort, job_id)
        runner.wake()
        bench.until(job_id, "ABORTED")


@pytest.mark.parametrize(("ask", "end"), [(request_pause, "PAUSED"), (request_abort, "ABORTED")])
def test_stop_is_not_said_before_silence_is_proved(bench: Workbench, ask, end: str) -> None:
    quiet = threading.Event()
    tries = threading.Semaphore(0)

    def prove(_context: JobContext) -> None:
        tries.release()
        if not quiet.is_set():
            raise JobWaiting([], not_before=None, detail="still running at the target: job_x:unit:1")

    with bench.running(kind(work_until_stopped, prove)) as runner:
        job_id = bench.submit()
        bench.until(job_id, "RUNNING")
        passing = bench.do(ask, job_id).state
        runner.wake()
        for _ in range(2):  # it tries again and again, without a lease in between
            assert tries.acquire(timeout=10)
            waiting = _until_waiting_on(bench, job_id)
            assert (waiting.state, waiting.lease_instance) == (passing, None)
            assert waiting.waiting_on[0]["kind"] == "TARGET_SILENCE"
            assert "job_x:unit:1" in waiting.waiting_on[0]["ref"]
            bench.make_due(job_id)
            runner.wake()
        quiet.set()
        bench.make_due(job_id)
        runner.wake()
        assert bench.until(job_id, end).waiting_on == []


def _until_waiting_on(bench: Workbench, job_id: str) -> Any:
    for _ in range(2_000):
        job = bench.job(job_id)
        if job.waiting_on and job.lease_instance is None:
            return job
        time.sleep(0.005)
    raise AssertionError("nothing is waited for")


@pytest.mark.parametrize(("ask", "end"), [(request_pause, "PAUSED"), (request_abort, "ABORTED")])
def test_stop_of_a_dead_runners_job_is_proved_by_another(bench: Workbench, ask, end: str) -> None:
    ran: list[str] = []

    def task(context: JobContext) -> Mapping[str, Any]:
        ran.append(context.job.id)
        return {}

    job_id = bench.submit()
    bench.claim(claimer("ins_dead"))
    bench.do(ask, job_id)
    bench.lapse(job_id)
    with bench.running(kind(task)):
        job = bench.until(job_id, end)
    assert ran == []  # "claimed by a runner that only proves silence"
    assert (job.attempt, job.crash_count) == (2, 0)


def test_abort_during_the_pauses_proof_wins(bench: Workbench) -> None:
    proving, asked = threading.Event(), threading.Event()

    def prove(_context: JobContext) -> None:
        proving.set()
        asked.wait(10)

    with bench.running(kind(work_until_stopped, prove)) as runner:
        job_id = bench.submit()
        bench.until(job_id, "RUNNING")
        bench.do(request_pause, job_id)
        runner.wake()
        assert proving.wait(10)
        assert bench.do(request_abort, job_id).state == "ABORTING"
        asked.set()
        bench.until(job_id, "ABORTED")
    assert "PAUSED" not in bench.states_seen(job_id)


def test_pause_that_meets_the_end_of_the_task_wins(bench: Workbench) -> None:
    inside, ordered = threading.Event(), threading.Event()

    def task(_context: JobContext) -> Mapping[str, Any]:
        inside.set()
        ordered.wait(10)
        return {"ran": True}

    with bench.running(kind(task)) as runner:
        job_id = bench.submit()
        assert inside.wait(10)
        bench.do(request_pause, job_id)
        ordered.set()
        bench.until(job_id, "PAUSED")
        bench.do(request_resume, job_id)
        runner.wake()
        assert bench.until(job_id, "SUCCEEDED").result == {"ran": True}


def test_graceful_stop_hands_back_without_a_crash(bench: Workbench) -> None:
    job_id = bench.submit()
    with bench.running(kind(work_until_stopped)):
        bench.until(job_id, "RUNNING")
    job = bench.job(job_id)
    assert (job.state, job.crash_count, job.lease_instance) == ("QUEUED", 0, None)
    assert bench.events(job_id)[-1].data == {"state": "QUEUED", "reason": "HANDED_BACK"}
    with bench.running(kind(finish), by=claimer("ins_b")):
        assert bench.until(job_id, "SUCCEEDED").attempt == 2


def test_stopped_runner_claims_nothing_more(bench: Workbench) -> None:
    with bench.running(kind(finish)) as runner:
        assert runner.is_alive
    assert not runner.is_alive
    job_id = bench.submit()
    runner.wake()
    time.sleep(0.1)
    assert bench.state(job_id) == "QUEUED"


def test_job_that_does_not_stop_keeps_its_lease(sqlite_bench: Workbench) -> None:
    bench = sqlite_bench
    release = threading.Event()

    def deaf(_context: JobContext) -> Mapping[str, Any]:
        release.wait(20)
        return {}

    job_id = bench.submit()
    runner = bench.runner(kind(deaf))
    runner.start()
    bench.until(job_id, "RUNNING")
    began = time.monotonic()
    assert runner.stop(0.2) is False
    assert time.monotonic() - began < 2.0  # "exit 0 within 15 s": a deaf job must not add to the grace
    assert bench.job(job_id).lease_instance == "ins_a"  # nobody may take it while it may still write
    release.set()
    bench.until(job_id, "SUCCEEDED")


def test_blocked_statement_is_cancelled_after_the_grace(bench: Workbench) -> None:
    cancelled = threading.Event()

    def blocked(context: JobContext) -> Mapping[str, Any]:
        forget = context.on_cancel(cancelled.set)
        cancelled.wait(20)
        forget()
        context.check()
        return {}

    with bench.running(kind(blocked), cancel_grace_s=0.1) as runner:
        job_id = bench.submit()
        bench.until(job_id, "RUNNING")
        bench.do(request_pause, job_id)
        runner.wake()
        bench.until(job_id, "PAUSED")
    assert cancelled.is_set()


def test_slots_of_each_class_are_kept_apart(bench: Workbench) -> None:
    with bench.running(kind(work_until_stopped), runner_jobs_max=2, runner_interactive_jobs_max=1):
        bulk = [bench.submit() for _ in range(4)]
        for job_id in bulk[:2]:
            bench.until(job_id, "RUNNING")
        interactive = [bench.submit(job_class=JobClass.INTERACTIVE) for _ in range(2)]
        bench.until(interactive[0], "RUNNING")  # bulk jobs never take an interactive slot
        time.sleep(0.1)
        states = [bench.state(job_id) for job_id in (*bulk[2:], interactive[1])]
        assert states == ["QUEUED"] * 3


def test_job_on_the_pool_leaves_room_for_another(bench: Workbench) -> None:
    def on_the_pool(context: JobContext) -> Mapping[str, Any]:
        context.moves_to(pool=True)
        return work_until_stopped(context)

    with bench.running(kind(on_the_pool), runner_jobs_max=1, runner_spark_jobs_max=2):
        jobs = [bench.submit() for _ in range(5)]
        for job_id in jobs[:3]:
            bench.until(job_id, "RUNNING")
        time.sleep(0.1)
        assert [bench.state(job_id) for job_id in jobs[3:]] == ["QUEUED"] * 2


def test_two_runners_share_jobs_and_run_each_once(postgresql_bench: Workbench) -> None:
    bench = postgresql_bench
    runs: list[str] = []

    def task(context: JobContext) -> Mapping[str, Any]:
        runs.append(context.job.id)
        return {}

    ids = [bench.submit() for _ in range(60)]
    with (
        bench.running(kind(task), by=claimer("ins_a")),
        bench.running(kind(task), by=claimer("ins_b")),
    ):
        for job_id in ids:
            bench.until(job_id, "SUCCEEDED")
    assert sorted(runs) == sorted(ids)
    assert {bench.job(job_id).attempt for job_id in ids} == {1}
    assert {event.data.get("instance") for job_id in ids for event in bench.events(job_id)[1:2]} == {
        "ins_a",
        "ins_b",
    }


def test_killed_runner_is_replaced_after_its_lease(bench: Workbench) -> None:
    job_id = bench.submit()
    dead = bench.context(claimer("ins_dead"))
    dead.save_checkpoint("units", {"done": 3})

    def goes_on(context: JobContext) -> Mapping[str, Any]:
        return {"from": context.checkpoint("units")}

    with bench.running(kind(goes_on)):
        time.sleep(0.1)
        assert bench.job(job_id).lease_instance == "ins_dead"
        bench.lapse(job_id)
        job = bench.until(job_id, "SUCCEEDED")
    assert (job.result, job.attempt, job.crash_count) == ({"from": {"done": 3}}, 2, 1)


def test_runner_leaves_its_own_lapsed_job_alone_while_the_old_attempt_runs(bench: Workbench) -> None:
    # Its lease lapsed (metadata away, or the process slept), the runner reaped its own job and claimed it
    # again while the first attempt was still coming to a stop: an assertion killed the claim loop for good.
    first_may_end, attempts = threading.Event(), []

    def task(context: JobContext) -> Mapping[str, Any]:
        attempts.append(context.job.attempt)
        if attempts == [1]:
            first_may_end.wait(20)
            context.check()
        return {}

    with bench.running(kind(task), lease_renew_interval_s=30.0) as runner:
        job_id = bench.submit()
        bench.until(job_id, "RUNNING")
        bench.lapse(job_id)
        bench.until(job_id, "QUEUED")
        time.sleep(0.2)
        other = bench.submit()
        bench.until(other, "SUCCEEDED")
        assert (bench.state(job_id), runner.is_alive) == ("QUEUED", True)
        first_may_end.set()
        bench.until(job_id, "SUCCEEDED")
        assert runner.is_alive
    assert attempts == [1, 1, 2]


@pytest.mark.parametrize("attempts", [15, pytest.param(40, marks=pytest.mark.long)])
def test_wake_at_the_very_end_of_an_attempt_does_not_kill_the_runner(bench: Workbench, attempts: int) -> None:
    # The end of an attempt is committed before its thread is gone: a wake in between must only wait.
    def task(context: JobContext) -> Mapping[str, Any]:
        if context.job.attempt < attempts:
            raise JobWaiting([WaitingOn(kind="JOB", ref="x")], not_before=None, wake_key="claim:x:y")
        return {}

    with bench.running(kind(task)) as runner:
        job_id = bench.submit()
        for _ in range(5_000):
            if bench.state(job_id) == "SUCCEEDED":
                break
            with bench.database.transaction() as db:
                wake(db, "claim:x:y", now=bench.clock.now())
            runner.wake()
        assert bench.job(job_id).attempt == attempts
        assert runner.is_alive


def test_end_written_twice_is_refused(bench: Workbench) -> None:
    bench.submit()
    context = bench.context()
    results = in_threads(4, lambda _: outcome.succeed(context, {}))
    assert sum(result is None for result in results) == 1
    assert sum(isinstance(result, LeaseLost) for result in results) == 3
    assert bench.states_seen(context.job.id) == ["QUEUED", "RUNNING", "SUCCEEDED"]


def test_order_outranks_shutdown(bench: Workbench) -> None:
    job_id = bench.submit()
    inside, stop = threading.Event(), threading.Event()

    def task(context: JobContext) -> Mapping[str, Any]:
        inside.set()
        stop.wait(10)
        context.check()
        return {}

    with bench.running(kind(task)):
        assert inside.wait(10)
        bench.do(request_abort, job_id)
        threading.Timer(0.2, stop.set).start()
    assert bench.state(job_id) == JobState.ABORTED


@pytest.mark.parametrize(
    "met", [TimeoutError("slow"), multiprocessing.TimeoutError("pipe"), sa.exc.TimeoutError("pool")]
)
def test_what_did_not_answer_in_time_is_tried_again(bench: Workbench, met: Exception) -> None:
    """Under load a cycle was FAILED for good by INTERNAL, an unexpected error: TimeoutError."""
    attempts: list[int] = []

    def slow(context: JobContext) -> Mapping[str, Any]:
        attempts.append(context.job.attempt)
        if len(attempts) < 3:
            raise met
        return {}

    with bench.running(kind(slow)):
        job_id = bench.submit()
        while (job := bench.until(job_id, "WAITING", "SUCCEEDED", "FAILED")).state == "WAITING":
            assert [item["kind"] for item in job.waiting_on] == ["UNANSWERED_IN_TIME"]
            bench.make_due_again(job)
    assert job.state == "SUCCEEDED"
    assert len(attempts) == 3


def test_what_never_answers_in_time_fails_by_its_own_name(bench: Workbench) -> None:
    def slow(_context: JobContext) -> Mapping[str, Any]:
        raise TimeoutError

    with bench.running(kind(slow), job_retries_max=4):
        job_id = bench.submit()
        while (job := bench.until(job_id, "WAITING", "FAILED")).state == "WAITING":
            bench.make_due_again(job)
    assert job.error is not None
    assert (job.error["code"], job.error["retryable"]) == ("UNANSWERED_IN_TIME", True)
