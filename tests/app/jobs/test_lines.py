"""The log tells each transition of each job, once it is committed, and a wait when its cause changes."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from sqlmodel import Session
from structlog.testing import capture_logs

from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.lines import SAID_MAX, SAME_KIND_AGAIN_S, JobLines, Step
from app.jobs.models import WaitingOn
from app.jobs.rows import JobEvent
from app.jobs.running.context import JobContext
from app.jobs.running.tasks import TaskKind
from app.jobs.service import request_abort, request_pause, request_resume
from app.jobs.states import JobState
from app.verbs.table import VERBS
from tests.app.jobs.workbench import Workbench, finish, kind, silent, work_until_stopped


def told(lines: list[Any], job_id: str) -> list[Any]:
    return [line for line in lines if line.get("job_id") == job_id and line["event"].startswith("job ")]


def names(lines: list[Any], job_id: str) -> list[str]:
    return [line["event"] for line in told(lines, job_id)]


def test_jobs_of_every_kind_tell_their_way(bench: Workbench) -> None:
    # 17 jobs left no line at all.
    kinds = [verb.kind for verb in VERBS]
    with capture_logs() as lines:
        tasks = {each: TaskKind(run=finish, prove_silence=silent) for each in kinds}
        with bench.running(tasks):
            jobs = {each: bench.submit(each, store="shop") for each in kinds}
            for job_id in jobs.values():
                bench.until(job_id, "SUCCEEDED")
    for each, job_id in jobs.items():
        mine = told(lines, job_id)
        assert [line["event"] for line in mine] == ["job submitted", "job started", "job ended"]
        assert {(line["kind"], line["store"], line["caller"]) for line in mine} == {(each, "shop", "ann")}
        assert [line["state"] for line in mine] == ["QUEUED", "RUNNING", "SUCCEEDED"]
        json.dumps(mine)  # as the log writes it


def test_a_failure_and_orders_are_told_with_cause_and_actor(bench: Workbench) -> None:
    def fail(_context: JobContext) -> Mapping[str, Any]:
        raise JobFailed("TARGET_AUTH_FAILED", "the password is wrong")

    with capture_logs() as lines:
        with bench.running(kind(fail)):
            failed = bench.submit()
            bench.until(failed, "FAILED")
        with bench.running(kind(work_until_stopped)):
            job_id = bench.submit()
            bench.until(job_id, "RUNNING")
            bench.do(request_pause, job_id, reason="lunch")
            bench.until(job_id, "PAUSED")
            bench.do(request_resume, job_id)
            bench.until(job_id, "RUNNING")
            bench.do(request_abort, job_id, reason="wrong store")
            bench.until(job_id, "ABORTED")
    last = told(lines, failed)[-1]
    assert last["event"] == "job failed"
    assert last["log_level"] == "warning"
    assert (last["code"], last["detail"]) == ("TARGET_AUTH_FAILED", "the password is wrong")
    way = ["submitted", "started", "pausing", "paused", "requeued", "started", "aborting", "ended"]
    assert names(lines, job_id) == [f"job {step}" for step in way]
    aborting = told(lines, job_id)[-2]
    assert (aborting["actor"], aborting["reason"]) == ("ann", "wrong store")


RETRIES = 30


def test_each_attempt_at_a_target_that_is_away_leaves_a_line(bench: Workbench) -> None:
    def away(context: JobContext) -> Mapping[str, Any]:
        bench.make_due(context.job.id)
        waiting_on = [WaitingOn(kind="TARGET_UNREACHABLE", ref="shop")]
        raise JobWaiting(waiting_on, not_before=None, transient=True, detail="connection refused")

    at_once = {"job_retries_max": RETRIES, "job_retry_backoff_max_s": 0.0}
    with capture_logs() as lines, bench.running(kind(away), **at_once):
        job_id = bench.submit()
        bench.until(job_id, "FAILED")
    assert names(lines, job_id) == [
        "job submitted",
        "job started",
        *["job attempt failed"] * RETRIES,
        "job failed",
    ]
    attempts = [line for line in told(lines, job_id) if line["event"] == "job attempt failed"]
    assert [line["retries"] for line in attempts] == list(range(1, RETRIES + 1))
    assert attempts[0]["waiting_on"] == ["TARGET_UNREACHABLE shop"]
    assert attempts[0]["detail"] == "connection refused"


def test_a_wait_is_told_when_its_cause_changes_and_not_at_each_look(bench: Workbench) -> None:
    causes = iter(["LOCK"] * 5 + ["BACKUP"] * 5)

    def look(context: JobContext) -> Mapping[str, Any]:
        cause = next(causes, None)
        if cause is None:
            context.progress(unit="rows", done=1, total=1)
            return {}
        raise JobWaiting([WaitingOn(kind=cause, ref="shop")], not_before=bench.clock.now())

    with capture_logs() as lines, bench.running(kind(look)):
        job_id = bench.submit()
        bench.until(job_id, "SUCCEEDED")
    way = ["submitted", "started", "waits", "waits", "goes on", "ended"]
    assert names(lines, job_id) == [f"job {step}" for step in way]
    waits = [line["waiting_on"] for line in told(lines, job_id) if line["event"] == "job waits"]
    assert waits == [["LOCK shop"], ["BACKUP shop"]]


def test_what_was_not_committed_is_not_told(bench: Workbench) -> None:
    job_id = bench.submit()

    def abort(db: Session) -> None:
        request_abort(db, job_id, now=bench.clock.now(), actor="ann")
        raise KeyError

    with capture_logs() as lines, pytest.raises(KeyError), bench.database.transaction() as db:
        abort(db)
    assert told(lines, job_id) == []
    with capture_logs() as lines:
        bench.do(request_abort, job_id)
    assert names(lines, job_id) == ["job ended"]


def test_every_state_that_was_written_has_its_line(bench: Workbench) -> None:
    # The events of state are the facts; a line is left out only where a wait looks again.
    with capture_logs() as lines, bench.running(kind(finish)):
        made = [bench.submit() for _ in range(17)]
        for job_id in made:
            bench.until(job_id, "SUCCEEDED")
    for job_id in made:
        states = [event for event in bench.events(job_id) if isinstance(event, JobEvent)]
        assert len(names(lines, job_id)) == len([event for event in states if event.type == "state"])


def test_what_was_said_takes_a_bounded_room() -> None:
    now = 0.0
    lines = JobLines(clock=lambda: now)

    def wait(job_id: str, ref: str) -> Step:
        item = {"kind": "LOCK", "ref": ref}
        return Step(job_id, "PURGE", "shop", "ann", JobState.WAITING, 1, 0, {"state": "WAITING"}, [item])

    with capture_logs() as said:
        for number in range(SAID_MAX + 100):
            lines.say(wait(f"job_{number}", "pid 7"))
    assert len(said) == SAID_MAX + 100
    assert len(lines._waits) == SAID_MAX
    newest = f"job_{SAID_MAX + 99}"
    with capture_logs() as said:
        for second in range(600):  # a reference that tells an age is not a cause of its own each second
            now = float(second)
            lines.say(wait(newest, f"idle for {second} s"))
    assert len(said) == 600 // SAME_KIND_AGAIN_S - 1
