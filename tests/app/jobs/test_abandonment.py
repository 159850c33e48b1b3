"""The end by an admin's word: only where nobody can prove silence, and said for ever."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.jobs.again import retry
from app.jobs.errors import ConflictingJob, IllegalTransition, JobFailed, JobWaiting, LeaseLost, TargetNotGone
from app.jobs.models import WaitingOn, read_job
from app.jobs.rows import Job, JobClaim
from app.jobs.running import outcome
from app.jobs.running.abandonment import TARGET_SILENCE, abandon
from app.jobs.running.claims import claim_target
from app.jobs.running.context import JobContext
from app.jobs.service import refuse_conflict, request_abort
from app.jobs.states import JobState
from tests.app.jobs.workbench import Workbench, kind

TARGET, TABLES = "postgresql:7:16384:public", "sym_"
AWAY = [WaitingOn(kind="TARGET_UNREACHABLE", ref="shop")]
SILENCE = [WaitingOn(kind=TARGET_SILENCE, ref="no answer").model_dump(mode="json")]


def _take(bench: Workbench, job_id: str) -> str | None:
    with bench.database.transaction() as db:
        now = bench.database.now(db)
        return claim_target(db, job_id=job_id, target_identity=TARGET, resource=TABLES, now=now)


def _holder(bench: Workbench) -> str | None:
    with bench.database.reading() as db:
        row = db.get(JobClaim, (TARGET, TABLES))
        return None if row is None else row.job_id


@pytest.mark.parametrize("state", list(JobState))
def test_only_a_job_that_waits_for_a_target_that_is_gone_is_abandoned(
    bench: Workbench, state: JobState
) -> None:
    job_id = bench.put(state, waiting_on=SILENCE)
    if state in (JobState.WAITING, JobState.PAUSING, JobState.ABORTING, JobState.ABANDONED):
        assert bench.do(abandon, job_id, reason="gone").state == JobState.ABANDONED
    else:
        with pytest.raises(IllegalTransition):
            bench.do(abandon, job_id, reason="gone")


@pytest.mark.parametrize("state", [JobState.WAITING, JobState.PAUSING, JobState.ABORTING])
def test_job_whose_target_may_answer_is_not_abandoned(bench: Workbench, state: JobState) -> None:
    waiting_on = [WaitingOn(kind="JOB", ref="job_x").model_dump(mode="json")]
    for shown in ([], waiting_on):
        job_id = bench.put(state, waiting_on=shown)
        with pytest.raises(TargetNotGone):
            bench.do(abandon, job_id, reason="gone")
        assert bench.state(job_id) == state


def test_abandoned_job_gives_its_claims_back_and_says_that_nobody_knows(bench: Workbench) -> None:
    job_id = bench.put(JobState.ABORTING, waiting_on=SILENCE)
    _take(bench, job_id)
    ended = read_job(bench.do(abandon, job_id, reason="burnt down"))
    assert (ended.state, ended.silence_proved, ended.reason) == ("ABANDONED", False, "burnt down")
    assert ended.finished_at is not None
    assert _holder(bench) is None
    last = bench.events(job_id)[-1].data
    assert (last["state"], last["silence_proved"], last["actor"]) == ("ABANDONED", False, "ann")
    assert bench.do(abandon, job_id, reason="again").reason == "burnt down"
    with bench.database.transaction() as db:
        again = retry(db, job_id, now=bench.clock.now(), actor="ann", token_id="t", queued_max=9)
        assert again.retried_from == job_id


def test_runner_that_still_asks_the_target_writes_nothing_over_the_end(bench: Workbench) -> None:
    job_id = bench.submit()
    context = bench.context()
    bench.do(request_abort, job_id)
    outcome.silence_unproven(context, "no answer")
    bench.make_due(job_id)
    proving = bench.context()
    assert bench.row(job_id)["waiting_on"] != []  # why it is not proved stays to be seen meanwhile
    bench.do(abandon, job_id, reason="gone")
    for act in (outcome.aborted, outcome.paused):
        with pytest.raises(LeaseLost):
            act(proving)
    assert bench.state(job_id) == "ABANDONED"


def test_abort_that_cannot_be_proved_is_ended_by_word_under_a_running_runner(bench: Workbench) -> None:
    def unproved(_context: JobContext) -> None:
        raise JobWaiting([], not_before=None, detail="TARGET_UNREACHABLE: gone")

    def work(context: JobContext) -> dict[str, object]:
        while True:
            context.check()
            context.sleep(0.01)

    job_id = bench.submit()
    with bench.running(kind(work, unproved)):
        bench.until(job_id, "RUNNING")
        bench.do(request_abort, job_id)
        for _ in range(200):
            try:
                bench.do(abandon, job_id, reason="gone")
                break
            except TargetNotGone:
                bench.clock.sleep(0.02)
        assert bench.until(job_id, "ABANDONED").silence_proved is False


def test_wait_for_a_target_that_is_away_gives_the_claims_back(bench: Workbench) -> None:
    first, second = bench.submit(), bench.submit(store="same-target-new-address")
    context = bench.context()
    bench.set(first, claim_identity=TARGET, claim_resource=TABLES)
    _take(bench, first)
    waiting = JobWaiting(AWAY, not_before=None, transient=True, code="TARGET_UNREACHABLE", gives_back=True)
    outcome.wait(context, waiting, proven=False)
    assert _holder(bench) is None
    with bench.database.transaction() as db:  # its own store's next job waits for it, others do not
        refuse_conflict(db, store="same-target-new-address", identity=TARGET, resource=TABLES)
        with pytest.raises(ConflictingJob):
            refuse_conflict(db, store="shop", identity=TARGET, resource=TABLES)
    assert _take(bench, second) is None
    assert _take(bench, first) == second


def test_wait_for_anything_else_keeps_them(bench: Workbench) -> None:
    job_id = bench.submit()
    context = bench.context()
    _take(bench, job_id)
    until = bench.clock.now() + timedelta(seconds=5)
    outcome.wait(context, JobWaiting(AWAY, not_before=until), proven=True)
    assert _holder(bench) == job_id


def test_failure_says_whether_its_silence_was_proved(bench: Workbench) -> None:
    def run(_context: JobContext) -> dict[str, object]:
        raise JobFailed("BROKEN", "it broke")

    def unproved(_context: JobContext) -> None:
        raise JobWaiting([], not_before=None, detail="gone")

    proved, not_proved = bench.submit(), bench.submit()
    with bench.running(kind(run)):
        ended: Job = bench.until(proved, "FAILED")
        bench.until(not_proved, "FAILED")
    assert ended.silence_proved is True
    third = bench.submit()
    with bench.running(kind(run, unproved)):
        assert bench.until(third, "FAILED").silence_proved is False
