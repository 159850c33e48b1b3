"""api.md, Jobs: job_claims(target_identity, resource) is unique: two jobs never write to the same tables."""

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError
from sqlmodel import select

from app.jobs.errors import ConflictingJob, JobFailed, JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.rows import JobClaim
from app.jobs.running import outcome
from app.jobs.running.claims import claim_target, overlapping_claim
from app.jobs.running.context import JobContext
from app.jobs.service import (
    JobRequest,
    claim_key,
    refuse_conflict,
    release_claims,
    request_abort,
    request_pause,
    submit,
)
from app.jobs.states import JobState
from tests.app.jobs.workbench import Workbench, in_threads, kind

TARGET, TABLES = "postgresql:7:16384:public", "sym_"


def take(bench: Workbench, job_id: str, *, target: str = TARGET, resource: str = TABLES) -> str | None:
    with bench.database.transaction() as db:
        now = bench.database.now(db)
        return claim_target(db, job_id=job_id, target_identity=target, resource=resource, now=now)


def claims(bench: Workbench) -> dict[tuple[str, str], str]:
    with bench.database.reading() as db:
        return {(row.target_identity, row.resource): row.job_id for row in db.exec(select(JobClaim)).all()}


def test_second_job_is_told_who_holds_the_tables(bench: Workbench) -> None:
    first, second = bench.submit(), bench.submit(store="same-tables-other-name")
    assert take(bench, first) is None
    assert take(bench, first) is None  # again is harmless
    assert take(bench, second) == first
    assert take(bench, second, resource="other_") is None
    assert take(bench, second, target="sqlite:1:2") is None
    assert claims(bench)[(TARGET, TABLES)] == first


def test_claim_is_unique_in_the_database_itself(bench: Workbench) -> None:
    first, second = bench.submit(), bench.submit()
    take(bench, first)
    row = JobClaim(target_identity=TARGET, resource=TABLES, job_id=second, since=bench.clock.now())
    with pytest.raises(IntegrityError), bench.database.transaction() as db:
        db.add(row)


def test_jobs_that_claim_at_once_have_one_winner_and_no_bug(bench: Workbench) -> None:
    # Both saw a free place and inserted; the later one met the unique key as an unexpected error, and its job
    # FAILED with INTERNAL where CONFLICTING_JOB (or a place in the queue) was due.
    for turn in range(5):
        ids = [bench.submit() for _ in range(6)]
        target = f"postgresql:{turn}"
        results = in_threads(6, lambda n, ids=ids, target=target: take(bench, ids[n], target=target))
        winner = claims(bench)[(target, TABLES)]
        assert sorted(results, key=str) == sorted([None, *[winner] * 5], key=str)


@pytest.mark.parametrize("state", ["RUNNING", "WAITING", "PAUSED", "PAUSING", "QUEUED"])
def test_claim_stays_while_the_job_lives(bench: Workbench, state: str) -> None:
    first, second = bench.submit(), bench.submit()
    take(bench, first)
    bench.set(first, state=JobState(state))
    assert take(bench, second) == first


def test_claim_of_an_ended_job_is_taken_over(bench: Workbench) -> None:
    first, second = bench.submit(), bench.submit()
    take(bench, first)
    bench.set(first, state=JobState.FAILED, finished_at=bench.clock.now())
    assert take(bench, second) is None
    assert claims(bench) == {(TARGET, TABLES): second}


def test_every_end_gives_the_claim_back_and_wakes_the_queue(bench: Workbench) -> None:
    with bench.database.reading() as db:
        later = bench.database.now(db) + timedelta(days=1)
    ends = [
        lambda context: outcome.succeed(context, {}),
        lambda context: outcome.fail(context, JobFailed("X", "x")),
        lambda context: (bench.do(request_abort, context.job.id), outcome.aborted(context)),
    ]
    for end in ends:
        job_id = bench.submit()
        context = bench.context()
        assert context.job.id == job_id
        take(bench, job_id)
        queued = bench.put(JobState.WAITING, wake_key=claim_key(TARGET, TABLES), not_before=later)
        end(context)
        assert claims(bench) == {}
        assert bench.job(queued).not_before < later
        bench.set(queued, state=JobState.ABORTED)


def test_paused_job_keeps_its_claim_and_aborting_it_gives_it_back(bench: Workbench) -> None:
    job_id = bench.submit()
    context = bench.context()
    take(bench, job_id)
    bench.do(request_pause, job_id)
    outcome.paused(context)
    assert claims(bench) == {(TARGET, TABLES): job_id}
    assert bench.do(request_abort, job_id).state == "ABORTED"
    assert claims(bench) == {}


def test_queued_conflict_runs_when_the_other_ends(bench: Workbench) -> None:
    running: set[str] = set()
    most: list[int] = []

    def task(context: JobContext) -> Mapping[str, Any]:
        other = take(bench, context.job.id)
        if other is not None:
            waiting_on = [WaitingOn(kind="JOB", ref=other)]
            until = context.clock.now() + timedelta(seconds=60)
            raise JobWaiting(waiting_on, not_before=until, wake_key=claim_key(TARGET, TABLES))
        running.add(context.job.id)
        most.append(len(running))
        context.sleep(0.02)
        running.discard(context.job.id)
        return {}

    ids = [bench.submit() for _ in range(4)]
    with bench.running(kind(task)) as runner:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            waiting = [job_id for job_id in ids if bench.state(job_id) == "WAITING"]
            if all(bench.state(job_id) == "SUCCEEDED" for job_id in ids):
                break
            for job_id in waiting if not running else []:  # the wake may have come before the wait
                bench.make_due(job_id)
            runner.wake()
            time.sleep(0.01)
    assert [bench.state(job_id) for job_id in ids] == ["SUCCEEDED"] * 4
    assert set(most) == {1}


def submit_refusing(bench: Workbench, *, store: str, identity: str | None) -> Any:
    with bench.database.transaction() as db:
        refuse_conflict(db, store=store, identity=identity, resource=TABLES)
        request = JobRequest(
            kind="TOY",
            store=store,
            params={},
            requested_by="ann",
            claim_identity=identity,
            claim_resource=TABLES,
        )
        return submit(db, request, now=bench.clock.now(), queued_max=100).id


@pytest.mark.parametrize("identity", [TARGET, None])
def test_submissions_at_once_have_one_winner(bench: Workbench, identity: str | None) -> None:
    results = in_threads(6, lambda _: submit_refusing(bench, store="shop", identity=identity))
    won = [result for result in results if isinstance(result, str)]
    lost = [result for result in results if isinstance(result, ConflictingJob)]
    assert (len(won), len(lost)) == (1, 5), results
    assert {error.extra["job_id"] for error in lost} == set(won)
    assert {(error.status, error.code) for error in lost} == {(409, "CONFLICTING_JOB")}


def test_two_stores_on_one_database_collide_when_it_is_known(bench: Workbench) -> None:
    first = submit_refusing(bench, store="shop", identity=TARGET)
    with pytest.raises(ConflictingJob) as refused:
        submit_refusing(bench, store="shop-again", identity=TARGET)
    assert refused.value.extra["job_id"] == first
    assert submit_refusing(bench, store="elsewhere", identity="sqlite:1:2")


WHOLE, PARTS = "public.rows", ("public.rows:a", "public.rows:b")


def take_overlapping(bench: Workbench, job_id: str, resource: str) -> tuple[str, str] | str | None:
    """As a job does: who holds a whole or a part of it, then the claim itself."""
    with bench.database.transaction() as db:
        beside = overlapping_claim(db, job_id=job_id, target_identity=TARGET, resource=resource)
        now = bench.database.now(db)
        return beside or claim_target(db, job_id=job_id, target_identity=TARGET, resource=resource, now=now)


def test_parts_stand_beside_each_other_and_exclude_the_whole(bench: Workbench) -> None:
    first, second, third, other = (bench.submit() for _ in range(4))
    assert take_overlapping(bench, first, PARTS[0]) is None
    assert take_overlapping(bench, second, PARTS[1]) is None
    assert take_overlapping(bench, third, PARTS[0]) == first
    assert take_overlapping(bench, third, WHOLE) in {(first, PARTS[0]), (second, PARTS[1])}
    assert take_overlapping(bench, other, "public.rowsa") is None  # no part of it
    assert take_overlapping(bench, first, PARTS[0]) is None  # again, by a later attempt


def test_the_whole_excludes_its_parts(bench: Workbench) -> None:
    first, second = bench.submit(), bench.submit()
    assert take_overlapping(bench, first, WHOLE) is None
    assert [take_overlapping(bench, second, part) for part in PARTS] == [(first, WHOLE)] * 2


def test_a_whole_and_its_parts_at_once_never_stand_together(bench: Workbench) -> None:
    resources_of = (WHOLE, *PARTS, WHOLE, *PARTS)
    for _ in range(10):
        jobs = [bench.submit() for _ in range(6)]
        wanted = dict(zip(jobs, resources_of, strict=True))
        in_threads(len(jobs), lambda n, jobs=jobs: take_overlapping(bench, jobs[n], resources_of[n]))
        held = set(claims(bench).values())
        resources = {wanted[job_id] for job_id in held}
        assert resources in ({WHOLE}, set(PARTS), {PARTS[0]}, {PARTS[1]}), resources
        with bench.database.transaction() as db:
            for job_id in held:
                release_claims(db, job_id, now=bench.clock.now())


def test_submissions_of_a_whole_and_of_parts_refuse_each_other(bench: Workbench) -> None:
    with bench.database.transaction() as db:
        request = JobRequest(kind="TOY", store="shop", params={}, requested_by="ann", claim_resource=PARTS[0])
        submit(db, request, now=bench.clock.now(), queued_max=100)
    with bench.database.transaction() as db:
        refuse_conflict(db, store="shop", identity=TARGET, resource=PARTS[1])
        refuse_conflict(db, store="shop", identity=TARGET, resource="public.row")
        for resource in (PARTS[0], WHOLE, f"{PARTS[0]}:c"):
            with pytest.raises(ConflictingJob):
                refuse_conflict(db, store="shop", identity=TARGET, resource=resource)
