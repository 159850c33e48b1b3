"""api.md, Jobs: the claim. Its order, its limits, its tokens, and that two runners never share a job."""

import json
import time
from collections import Counter as Tally

import pytest
from sqlalchemy import text

from app.jobs.rows import JobClass
from app.jobs.running.claims import current_epoch, raise_epoch
from app.jobs.service import request_resume
from app.jobs.states import JobState
from tests.app.forged import forged
from tests.app.jobs.workbench import Workbench, claimer, drain, in_threads
from tests.forge import forge_place

MANY = 200


def test_oldest_job_is_claimed_first(bench: Workbench) -> None:
    ids = [bench.submit() for _ in range(5)]
    claimed = [bench.claim() for _ in range(5)]
    assert [job.id for job in claimed if job] == ids
    assert bench.claim() is None


def test_claimed_job_carries_its_snapshot_and_a_lease(bench: Workbench) -> None:
    job_id = bench.submit(params={"retention_minutes": 60})
    claimed = bench.claim(claimer("ins_b", ttl_s=90))
    assert claimed is not None
    row = bench.job(job_id)
    assert (row.state, row.lease_instance, row.attempt, row.unproven) == ("RUNNING", "ins_b", 1, True)
    assert (claimed.params, claimed.token, claimed.attempt) == ({"retention_minutes": 60}, 1, 1)
    assert row.fencing_token == claimed.token
    with bench.database.reading() as db:
        left = row.lease_expires_at - bench.database.now(db)
    assert 80 < left.total_seconds() <= 90
    assert bench.states_seen(job_id) == ["QUEUED", "RUNNING"]
    assert bench.events(job_id)[-1].data == {"state": "RUNNING", "instance": "ins_b", "attempt": 1}


def test_every_claim_takes_a_greater_token_than_all_before(bench: Workbench) -> None:
    for _ in range(3):
        bench.submit()
    tokens = [claimed.token for _ in range(3) if (claimed := bench.claim())]
    bench.put(JobState.QUEUED)
    assert tokens == sorted(set(tokens))
    with bench.database.transaction() as db:
        assert raise_epoch(db, 5_000) == 5_000
        assert raise_epoch(db, 10) == 5_001  # never down
    claimed = bench.claim()
    assert claimed is not None
    assert claimed.token > 5_001
    with bench.database.reading() as db:
        assert current_epoch(db) == claimed.token


@pytest.mark.parametrize(
    ("runs_on", "labels", "taken"),
    [
        ([], frozenset(), True),
        ([], frozenset({"zone-a"}), True),
        (["zone-a"], frozenset(), False),
        (["zone-a"], frozenset({"zone-a", "fast"}), True),
        (["zone-a", "fast"], frozenset({"zone-a"}), False),
        (["fast", "zone-a", "fast"], frozenset({"zone-a", "fast"}), True),
        (["zone"], frozenset({"zone-a"}), False),
    ],
)
def test_runner_claims_only_what_its_labels_reach(bench: Workbench, runs_on, labels, taken) -> None:
    job_id = bench.submit(runs_on=runs_on)
    claimed = bench.claim(claimer(labels=labels))
    assert (claimed is not None and claimed.id == job_id) is taken
    assert bench.state(job_id) == ("RUNNING" if taken else "QUEUED")


def test_unreachable_jobs_do_not_hide_those_behind_them(bench: Workbench) -> None:
    for _ in range(60):  # more than one look takes
        bench.submit(runs_on=["elsewhere"])
    wanted = bench.submit()
    claimed = bench.claim()
    assert claimed is not None
    assert claimed.id == wanted


def test_full_store_does_not_hide_the_others(bench: Workbench) -> None:
    for _ in range(60):
        bench.submit(store="busy")
    wanted = bench.submit(store="calm")
    limits = {"busy": 1, "calm": 1}
    claimed = [job.store for _ in range(4) if (job := bench.claim(limits=limits))]
    assert claimed == ["busy", "calm"]
    assert bench.state(wanted) == "RUNNING"


def test_classes_are_claimed_apart(bench: Workbench) -> None:
    bulk = bench.submit()
    interactive = bench.submit(job_class=JobClass.INTERACTIVE)
    first = bench.claim(job_class=JobClass.INTERACTIVE)
    assert first is not None
    assert first.id == interactive
    assert bench.claim(job_class=JobClass.INTERACTIVE) is None
    assert bench.state(bulk) == "QUEUED"


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.WAITING])
def test_job_whose_time_has_not_come_is_left_alone(bench: Workbench, state: JobState) -> None:
    with bench.database.reading() as db:
        later = bench.database.now(db).replace(year=2999)
    job_id = bench.put(state, not_before=later)
    assert bench.claim() is None
    bench.make_due(job_id)
    claimed = bench.claim()
    assert claimed is not None
    assert claimed.id == job_id
    assert bench.job(job_id).not_before is None


def test_waiting_job_without_a_time_waits_for_its_event(bench: Workbench) -> None:
    bench.put(JobState.WAITING, not_before=None, wake_key="claim:x:y")
    assert bench.claim() is None


@pytest.mark.parametrize("state", ["PAUSED", "SUCCEEDED", "FAILED", "ABORTED"])
def test_job_at_rest_is_never_claimed(bench: Workbench, state: str) -> None:
    bench.put(JobState(state))
    assert bench.claim() is None


@pytest.mark.parametrize("state", [JobState.PAUSING, JobState.ABORTING])
def test_stopping_job_without_a_runner_is_claimed_in_its_state(bench: Workbench, state: JobState) -> None:
    job_id = bench.put(state, lease_instance="ins_dead")
    assert bench.claim() is None  # somebody may still hold it
    bench.set(job_id, lease_instance=None)
    claimed = bench.claim(limits={"shop": 1})
    assert claimed is not None
    assert claimed.state is state  # "claimed by a runner that only proves silence"
    assert bench.state(job_id) == state
    assert bench.states_seen(job_id) == ["QUEUED"]


def test_resumed_job_keeps_its_place_by_age(bench: Workbench) -> None:
    old, new = bench.submit(), bench.submit()
    bench.set(old, state=JobState.PAUSED)
    bench.do(request_resume, old)
    assert [job.id for _ in range(2) if (job := bench.claim())] == [old, new]


def test_limit_per_store_is_exact_under_races(bench: Workbench) -> None:
    for _ in range(20):
        bench.submit(store="busy")
    threads = 8
    by = [claimer(f"ins_{number}") for number in range(threads)]
    results = in_threads(threads, lambda n: [bench.claim(by[n], limits={"busy": 3}) for _ in range(3)])
    claimed = [job for jobs in results for job in jobs if job is not None]
    assert len(claimed) == 3
    bench.set(claimed[0].id, state=JobState.PAUSING)  # still holds its place
    assert bench.claim(limits={"busy": 3}) is None
    bench.set(claimed[0].id, state=JobState.PAUSED, lease_instance=None)
    results = in_threads(threads, lambda n: bench.claim(by[n], limits={"busy": 3}))
    assert sum(job is not None for job in results) == 1


def test_threads_of_two_runners_never_claim_the_same_job(bench: Workbench) -> None:
    ids = {bench.submit() for _ in range(MANY)}

    def claim_all(number: int) -> list[tuple[str, int]]:
        by, mine = claimer(f"ins_{number % 2}"), []
        while (claimed := bench.claim(by)) is not None:
            mine.append((claimed.id, claimed.token))
        return mine

    results = in_threads(8, claim_all)
    claimed = [pair for mine in results for pair in mine]
    assert Tally(job_id for job_id, _ in claimed) == Tally(ids)
    assert len({token for _, token in claimed}) == MANY
    with bench.database.reading() as db:
        holders = dict(db.execute(text("select lease_instance, count(*) from jobs group by 1")).all())
    assert sum(holders.values()) == MANY
    assert set(holders) <= {"ins_0", "ins_1"}


def test_two_processes_never_claim_the_same_job(
    postgresql_bench: Workbench, migrated_postgresql: str
) -> None:
    ids = {postgresql_bench.submit() for _ in range(MANY)}
    forge_place()  # it takes seconds to make, and both are to begin together
    begin = str(time.time() + 3.0)
    with (
        forged(drain, migrated_postgresql, "ins_0", begin) as (_, one),
        forged(drain, migrated_postgresql, "ins_1", begin) as (_, other),
    ):
        shares = [json.loads(said.read().splitlines()[-1]) for said in (one, other)]
    claimed = [job_id for share in shares for job_id in share]
    assert Tally(claimed) == Tally(ids)
    assert all(shares), "one process claimed everything: nothing was raced"
