"""api.md, Jobs: "FAILED with CRASH_LOOP after 5 crashes"; progress counts them from zero again."""

from collections.abc import Mapping
from typing import Any

import pytest

from app.jobs.errors import JobWaiting
from app.jobs.running.claims import reap
from app.jobs.running.context import JobContext
from app.jobs.service import request_abort, request_pause, request_resume
from tests.app.jobs.workbench import Workbench, claimer, finish, kind


def crash(bench: Workbench, job_id: str, *, before: Any = lambda _context: None) -> None:
    """A runner that takes the job, does something, and dies."""
    bench.make_due(job_id)
    context = bench.context(claimer("ins_dead"))
    assert context.job.id == job_id
    before(context)
    bench.lapse(job_id)
    with bench.database.transaction() as db:
        assert reap(db, bench.database, claimer("ins_b")) == [job_id]


def test_fifth_crash_without_progress_fails_the_job(bench: Workbench) -> None:
    ran: list[str] = []

    def task(context: JobContext) -> Mapping[str, Any]:
        ran.append(context.job.id)
        return {}

    job_id = bench.submit()
    for _ in range(5):
        crash(bench, job_id)
    bench.make_due(job_id)
    with bench.running(kind(task)):
        job = bench.until(job_id, "FAILED")
    assert ran == []
    assert job.error is not None
    assert (job.error["code"], job.crash_count) == ("CRASH_LOOP", 5)
    assert "5 crashes" in job.error["detail"]


def test_fourth_crash_is_forgiven(bench: Workbench) -> None:
    job_id = bench.submit()
    for _ in range(4):
        crash(bench, job_id)
    bench.make_due(job_id)
    with bench.running(kind(finish)):
        job = bench.until(job_id, "SUCCEEDED")
    assert (job.attempt, job.crash_count) == (5, 4)


@pytest.mark.parametrize(
    "gain",
    [
        lambda context: context.save_checkpoint("units", {"done": 1}, advanced=True),
        lambda context: [context.progress(unit="rows", done=done, total=9, force=True) for done in (3, 4)],
    ],
    ids=["checkpoint", "progress"],
)
def test_progress_counts_crashes_from_zero(bench: Workbench, gain) -> None:
    job_id = bench.submit()
    for _ in range(4):
        crash(bench, job_id)
    crash(bench, job_id, before=gain)
    assert bench.job(job_id).crash_count == 1


@pytest.mark.parametrize(
    "idle",
    [
        lambda context: context.save_checkpoint("plan", {"at": 1}),
        lambda context: context.progress(unit="rows", done=3, total=9, force=True),
        lambda context: context.note("warning", {}),
    ],
    ids=["checkpoint", "first progress", "note"],
)
def test_what_gains_nothing_leaves_the_count(bench: Workbench, idle) -> None:
    job_id = bench.submit()
    crash(bench, job_id)
    crash(bench, job_id, before=idle)
    assert bench.job(job_id).crash_count == 2


def test_crash_loop_is_declared_only_when_silent(bench: Workbench) -> None:
    proofs: list[str] = []

    def prove(context: JobContext) -> None:
        proofs.append(context.job.id)
        if len(proofs) == 1:
            raise JobWaiting([], not_before=None, detail="still running at the target")

    job_id = bench.submit()
    for _ in range(5):
        crash(bench, job_id)
    bench.make_due(job_id)
    with bench.running(kind(finish, prove)) as runner:
        waiting = bench.until(job_id, "WAITING")
        assert waiting.waiting_on[0]["kind"] == "TARGET_SILENCE"
        assert waiting.unproven is True
        bench.make_due(job_id)
        runner.wake()
        assert bench.until(job_id, "FAILED").error["code"] == "CRASH_LOOP"


@pytest.mark.parametrize(("ask", "end"), [(request_pause, "PAUSED"), (request_abort, "ABORTED")])
def test_order_during_the_crash_loops_proof_wins_at_once(bench: Workbench, ask, end: str) -> None:
    # The order took the job from under the failure, and nobody finished it until its lease had run out.
    def prove(context: JobContext) -> None:
        if bench.state(context.job.id) == "RUNNING":
            bench.do(ask, context.job.id)

    job_id = bench.submit()
    for _ in range(5):
        crash(bench, job_id)
    bench.make_due(job_id)
    with bench.running(kind(finish, prove)):
        bench.until(job_id, end)


def test_resumed_job_may_crash_five_times_again(bench: Workbench) -> None:
    job_id = bench.submit()
    for _ in range(4):
        crash(bench, job_id)
    bench.set(job_id, unproven=False)
    bench.do(request_pause, job_id)
    bench.do(request_resume, job_id)
    assert bench.job(job_id).crash_count == 0
