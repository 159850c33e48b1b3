"""api.md, Jobs: the table of transitions, and who may ask for which."""

import itertools

import pytest

from app.jobs.errors import IllegalTransition, JobNotFound
from app.jobs.service import request_abort, request_pause, request_resume
from app.jobs.states import ACTIVE, HELD, TERMINAL, TRANSITIONS, JobState, is_allowed, sources_of
from tests.app.jobs.workbench import Workbench

S = JobState
DIAGRAM = {
    (S.QUEUED, S.RUNNING),
    (S.RUNNING, S.WAITING),
    (S.WAITING, S.RUNNING),
    (S.RUNNING, S.SUCCEEDED),
    (S.RUNNING, S.FAILED),
    (S.QUEUED, S.PAUSED),
    (S.WAITING, S.PAUSED),
    (S.RUNNING, S.PAUSING),
    (S.PAUSING, S.PAUSED),
    (S.PAUSED, S.QUEUED),
    (S.QUEUED, S.ABORTED),
    (S.WAITING, S.ABORTED),
    (S.PAUSED, S.ABORTED),
    (S.RUNNING, S.ABORTING),
    (S.PAUSING, S.ABORTING),
    (S.PAUSING, S.RUNNING),
    (S.PAUSING, S.QUEUED),
    (S.ABORTING, S.ABORTED),
    (S.RUNNING, S.QUEUED),  # lease lost
}
# "ABORTED and PAUSED are said only when nothing of the job writes any more, proved at the target": a job that
# waits or was handed back may have left a statement behind, so a runner proves silence first.
# A target that is gone for good proves nothing: an admin's word ends the job, and says so.
BY_WORD = {(S.WAITING, S.ABANDONED), (S.PAUSING, S.ABANDONED), (S.ABORTING, S.ABANDONED)}
PROOF_FIRST = {
    (S.QUEUED, S.PAUSING),
    (S.WAITING, S.PAUSING),
    (S.QUEUED, S.ABORTING),
    (S.WAITING, S.ABORTING),
    (S.PAUSED, S.ABORTING),  # a parent with many children: they are aborted a few at a time, and then it is
}


@pytest.mark.parametrize(("source", "target"), list(itertools.product(S, S)))
def test_each_pair_of_states_follows_the_diagram(source: JobState, target: JobState) -> None:
    assert is_allowed(source, target) == ((source, target) in DIAGRAM | PROOF_FIRST | BY_WORD)


def test_table_names_every_state_once() -> None:
    assert set(TRANSITIONS) == set(S)
    assert all(TRANSITIONS[state] == frozenset() for state in TERMINAL)
    assert frozenset(S) == ACTIVE | TERMINAL
    assert not ACTIVE & TERMINAL


def test_sources_are_the_table_read_backwards() -> None:
    for target in S:
        assert sources_of(target) == sorted(state for state in S if target in TRANSITIONS[state])


ASKED = {
    "pause": (
        request_pause,
        {
            S.QUEUED: S.PAUSED,
            S.WAITING: S.PAUSED,
            S.RUNNING: S.PAUSING,
            S.PAUSING: S.PAUSING,
            S.PAUSED: S.PAUSED,
        },
        "PAUSED",
    ),
    "abort": (
        request_abort,
        {
            S.QUEUED: S.ABORTED,
            S.WAITING: S.ABORTED,
            S.PAUSED: S.ABORTED,
            S.RUNNING: S.ABORTING,
            S.PAUSING: S.ABORTING,
            S.ABORTING: S.ABORTING,
            S.ABORTED: S.ABORTED,
        },
        "ABORTED",
    ),
    "resume": (
        request_resume,
        {
            S.PAUSED: S.QUEUED,
            S.PAUSING: S.QUEUED,
            S.QUEUED: S.QUEUED,
            S.RUNNING: S.RUNNING,
            S.WAITING: S.WAITING,
        },
        "QUEUED",
    ),
}


@pytest.mark.parametrize("state", list(S))
@pytest.mark.parametrize("verb", list(ASKED))
def test_request_from_each_state_moves_stays_or_is_refused(
    sqlite_bench: Workbench, verb: str, state: JobState
) -> None:
    bench = sqlite_bench
    act, reached, wanted = ASKED[verb]
    job_id = bench.put(state)
    before = bench.row(job_id)
    if state in reached:
        assert bench.do(act, job_id).state == reached[state]
        assert bench.state(job_id) == reached[state]
        moved = reached[state] != state
        assert bench.states_seen(job_id) == ["QUEUED", reached[state]] if moved else ["QUEUED"]
        assert bench.job(job_id).version == before["version"] + (1 if moved else 0)
        return
    with pytest.raises(IllegalTransition) as refused:
        bench.do(act, job_id)
    assert refused.value.status == 409
    assert refused.value.code == "ILLEGAL_TRANSITION"
    assert refused.value.extra == {"state": state, "allowed": sorted(TRANSITIONS[state])}
    assert wanted in refused.value.detail
    assert bench.row(job_id) == before
    assert bench.states_seen(job_id) == ["QUEUED"]


@pytest.mark.parametrize("verb", list(ASKED))
def test_request_for_an_unknown_job_is_not_found(sqlite_bench: Workbench, verb: str) -> None:
    with pytest.raises(JobNotFound):
        sqlite_bench.do(ASKED[verb][0], "job_" + "0" * 26)


@pytest.mark.parametrize("state", [S.QUEUED, S.WAITING])
@pytest.mark.parametrize(("act", "passing"), [(request_pause, S.PAUSING), (request_abort, S.ABORTING)])
def test_unproven_job_passes_through_a_proof(bench: Workbench, state: JobState, act, passing) -> None:
    job_id = bench.put(state, unproven=True)
    assert bench.do(act, job_id).state == passing
    row = bench.job(job_id)
    assert row.finished_at is None
    assert row.not_before is None  # a runner may take it at once


def test_held_states_are_those_with_a_lease() -> None:
    assert {S.RUNNING, S.PAUSING, S.ABORTING} == HELD


def test_ended_job_keeps_no_lease_and_tells_when(bench: Workbench) -> None:
    job_id = bench.put(S.WAITING, wake_key="claim:x:y", waiting_on=[{"kind": "JOB", "ref": "x"}])
    job = bench.do(request_abort, job_id, reason="not needed")
    assert (job.state, job.reason, job.waiting_on, job.wake_key) == ("ABORTED", "not needed", [], None)
    assert job.finished_at == job.updated_at == bench.clock.now()


def test_resumed_job_starts_with_a_clean_count(bench: Workbench) -> None:
    job_id = bench.put(S.PAUSED, crash_count=4, retries=7)
    job = bench.do(request_resume, job_id)
    assert (job.state, job.crash_count, job.retries) == ("QUEUED", 0, 0)
