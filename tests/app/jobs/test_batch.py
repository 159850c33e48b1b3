"""A parent and its children: cascades, results per store, and no child that stops the others."""

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text

from app.clock import SystemClock
from app.jobs.again import retry
from app.jobs.batches.service import JOB_BATCH, prove_children_silent, run_batch
from app.jobs.errors import IllegalTransition, JobFailed
from app.jobs.running import outcome
from app.jobs.running.context import JobContext
from app.jobs.running.tasks import TaskKind, TaskKinds
from app.jobs.service import request_abort, request_pause, request_resume
from app.jobs.states import JobState
from app.jobs.writing import change_job
from tests.app.jobs.workbench import Workbench, silent, until_somebody_waits_for_a_row, work_until_stopped


@pytest.fixture
def clock() -> SystemClock:
    """Parents look again by time: these tests run on the real one."""
    return SystemClock()


STORES = ("berlin", "madrid", "oslo")


def fails_in_madrid(context: JobContext) -> Mapping[str, Any]:
    if context.job.store == "madrid" and not context.job.params.get("mended"):
        raise JobFailed("TARGET_READ_ONLY", "no right to delete")
    return {"removed": {"data": 3}}


def kinds(run: Any) -> TaskKinds:
    return {
        "TOY": TaskKind(run=run, prove_silence=silent),
        JOB_BATCH: TaskKind(run=partial(run_batch, submitters={}), prove_silence=prove_children_silent),
    }


def family(bench: Workbench, **params: Any) -> tuple[str, list[str]]:
    """As `POST /v1/jobs:batch` makes it."""
    parent = bench.submit(JOB_BATCH, store=None, params=params)
    children = [bench.submit(store=store, parent_id=parent) for store in STORES]
    bench.set(parent, unproven=True)
    return parent, children


def until_parent(bench: Workbench, parent: str, *states: str) -> Any:
    """Wait for a parent; it looks again every five seconds, here at once."""
    while bench.state(parent) not in states:
        if bench.state(parent) == "WAITING":
            bench.make_due(parent)
        time.sleep(0.05)
    return bench.job(parent)


def test_parent_tells_what_became_of_each_store(bench: Workbench) -> None:
    parent, children = family(bench)
    with bench.running(kinds(lambda _context: {"removed": {"data": 3}})):
        job = until_parent(bench, parent, "SUCCEEDED")
    assert job.result == {
        "stores": {
            store: {
                "job_id": child,
                "state": "SUCCEEDED",
                "engine": "INLINE",
                "error": None,
                "removed": {"data": 3},
            }
            for store, child in zip(STORES, children, strict=True)
        }
    }
    assert job.progress["done"] == job.progress["total"] == 3


def test_failing_child_does_not_stop_the_others(bench: Workbench) -> None:
    parent, children = family(bench)
    with bench.running(kinds(fails_in_madrid)):
        job = until_parent(bench, parent, "FAILED")
    states = [bench.state(child) for child in children]
    assert states == ["SUCCEEDED", "FAILED", "SUCCEEDED"]
    assert job.error["code"] == "CHILDREN_FAILED"
    assert "1 of 3" in job.error["detail"]
    assert "madrid" in job.error["detail"]
    assert job.result["stores"]["madrid"]["error"]["code"] == "TARGET_READ_ONLY"


def test_store_that_was_refused_is_in_the_result(bench: Workbench) -> None:
    refusal = {"code": "CONFLICTING_JOB", "detail": "another job writes there"}
    parent, _ = family(bench, refused={"rome": refusal})
    release = threading.Event()
    with bench.running(kinds(lambda _context: {"waited": release.wait(20)})):
        bench.until(parent, "WAITING")
        release.set()
        job = until_parent(bench, parent, "FAILED")
    assert job.result["stores"]["rome"] == {"job_id": None, "state": "REFUSED", "error": refusal}


def test_waiting_parent_takes_no_slot_and_wakes_with_its_children(bench: Workbench) -> None:
    release = threading.Event()

    def task(_context: JobContext) -> Mapping[str, Any]:
        release.wait(20)
        return {}

    parent, children = family(bench)
    with bench.running(
        kinds(task), runner_jobs_max=1
    ):  # a parent that held the only slot would wait for ever
        job = bench.until(parent, "WAITING")
        assert job.waiting_on[0]["kind"] == "CHILDREN"
        assert job.lease_instance is None
        release.set()
        until_parent(bench, parent, "SUCCEEDED")
    assert {bench.state(child) for child in children} == {"SUCCEEDED"}


def test_pause_and_resume_of_a_parent_reach_its_children(bench: Workbench) -> None:
    parent, children = family(bench)
    with bench.running(kinds(work_until_stopped)) as runner:
        for child in children:
            bench.until(child, "RUNNING")
        bench.until(parent, "WAITING")
        assert bench.do(request_pause, parent).state == "PAUSING"
        runner.wake()
        for child in children:
            bench.until(child, "PAUSED")
        bench.make_due(parent)
        bench.until(parent, "PAUSED")
        bench.do(request_resume, parent)
        runner.wake()
        for child in children:
            bench.until(child, "RUNNING")
        bench.do(request_abort, parent, reason="enough")
        runner.wake()
        for child in children:
            bench.until(child, "ABORTED")
        bench.until(parent, "ABORTED")


def test_parent_is_aborted_only_after_its_children(bench: Workbench) -> None:
    deaf = threading.Event()

    def task(context: JobContext) -> Mapping[str, Any]:
        deaf.wait(20)
        context.check()
        return {}

    parent, children = family(bench)
    with bench.running(kinds(task)) as runner:
        bench.until(parent, "WAITING")
        for child in children:
            bench.until(child, "RUNNING")
        bench.do(request_abort, parent)
        runner.wake()
        bench.make_due(parent)
        for _ in range(40):
            assert bench.state(parent) == "ABORTING"
        deaf.set()
        runner.wake()
        for child in children:
            bench.until(child, "ABORTED")
        bench.make_due(parent)
        runner.wake()
        bench.until(parent, "ABORTED")


def test_abort_leaves_what_has_ended_as_it_was(bench: Workbench) -> None:
    parent, children = family(bench)
    bench.set(parent, unproven=False)
    bench.set(children[0], state=JobState.SUCCEEDED)
    bench.set(children[1], state=JobState.PAUSED)
    bench.do(request_abort, parent)
    assert [bench.state(child) for child in children] == ["SUCCEEDED", "ABORTED", "ABORTED"]
    with pytest.raises(IllegalTransition):
        bench.do(request_resume, parent)


def test_child_that_ends_and_its_parents_pause_do_not_lock_each_other_out(
    postgresql_bench: Workbench,
) -> None:
    # The end of a child locked child, then parent; the pause of a parent locked parent, then child:
    # PostgreSQL ended one of them as a deadlock, and the client got 503.
    bench = postgresql_bench
    parent, children = family(bench)
    for job_id in (parent, *children):
        bench.set(job_id, runs_on_key="elsewhere")
    bench.set(children[0], runs_on_key="")
    with bench.database.reading() as db:
        later = bench.database.now(db).replace(year=2999)
    bench.set(parent, state=JobState.WAITING, wake_key=f"children:{parent}", not_before=later)
    context = bench.context()
    assert context.job.id == children[0]
    with ThreadPoolExecutor(1) as pool:
        with bench.database.transaction() as db:
            change_job(db, parent, guards=[], values={}, now=bench.clock.now())
            ended = pool.submit(outcome.succeed, context, {})
            until_somebody_waits_for_a_row(bench)
            db.execute(text("set local lock_timeout = '400ms'"))
            change_job(db, children[0], guards=[], values={"reason": "paused"}, now=bench.clock.now())
        ended.result(20)
    assert bench.state(children[0]) == "SUCCEEDED"
    assert bench.job(parent).not_before < later


def do_retry(bench: Workbench, job_id: str) -> Any:
    with bench.database.transaction() as db:
        job = retry(db, job_id, now=bench.clock.now(), actor="bob", token_id="tok_b", queued_max=100)
        db.refresh(job)
        return job


def test_retry_makes_a_new_job_from_the_old_ones_snapshot(bench: Workbench) -> None:
    old = bench.submit(params={"n": 1}, runs_on=["zone-a"], reason="nightly", token_id="tok_a")
    bench.set(old, state=JobState.FAILED, crash_count=5)
    new = do_retry(bench, old)
    assert new.id != old
    assert (new.state, new.retried_from, new.requested_by, new.token_id) == ("QUEUED", old, "bob", "tok_b")
    assert (new.params, new.runs_on_key, new.reason, new.crash_count) == ({"n": 1}, "zone-a", "nightly", 0)
    assert bench.state(old) == "FAILED"
    assert bench.states_seen(new.id) == ["QUEUED"]


RETRIED = ("FAILED", "ABORTED", "ABANDONED")


@pytest.mark.parametrize("state", [state for state in JobState if state not in RETRIED])
def test_job_that_neither_failed_nor_was_aborted_is_not_retried(
    sqlite_bench: Workbench, state: JobState
) -> None:
    job_id = sqlite_bench.put(state)
    with pytest.raises(Exception, match="not retried") as refused:
        do_retry(sqlite_bench, job_id)
    assert (refused.value.status, refused.value.code) == (409, "ILLEGAL_TRANSITION")


def test_retry_of_a_batch_runs_again_what_did_not_succeed(bench: Workbench) -> None:
    # The new parent had no children: it SUCCEEDED at once and nothing had been done.
    parent, children = family(bench)
    release = threading.Event()

    def task(context: JobContext) -> Mapping[str, Any]:
        release.wait(20)
        return fails_in_madrid(context)

    with bench.running(kinds(task)):
        bench.until(parent, "WAITING")
        release.set()
        until_parent(bench, parent, "FAILED")
        bench.set(children[1], params={"mended": True})
        release.clear()
        again = do_retry(bench, parent)
        bench.until(again.id, "WAITING")
        release.set()
        job = until_parent(bench, again.id, "SUCCEEDED", "FAILED")
    assert job.state == "SUCCEEDED"
    assert list(job.result["stores"]) == ["madrid"]
    child = bench.job(job.result["stores"]["madrid"]["job_id"])
    assert (child.parent_id, child.retried_from) == (again.id, children[1])
