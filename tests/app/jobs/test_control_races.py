"""Many hands on one job: each change wins whole or leaves nothing, and no event is lost."""

import random
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from sqlalchemy import text

from app.jobs.again import set_throttle
from app.jobs.errors import IllegalTransition, JobFailed, LeaseLost
from app.jobs.models import ThrottleSetting
from app.jobs.rows import Job, JobEvent
from app.jobs.running import outcome
from app.jobs.service import request_abort, request_pause, request_resume
from app.jobs.states import TRANSITIONS, JobState
from app.jobs.writing import change_job
from tests.app.jobs.workbench import Workbench, claimer, in_threads, until_somebody_waits_for_a_row


def assert_history_is_whole(bench: Workbench, job_id: str) -> None:
    """Sequences without holes, every step along the table, the last event is the row's state."""
    events = bench.events(job_id)
    row = bench.job(job_id)
    assert [event.seq for event in events] == list(range(1, row.event_seq + 1))
    states = bench.states_seen(job_id)
    for source, target in pairwise(states):
        assert target in TRANSITIONS[JobState(source)], states
    assert states[-1] == row.state


def test_events_from_many_threads_keep_a_sequence_without_holes(bench: Workbench) -> None:
    job_id = bench.submit()

    def note(number: int) -> None:
        for turn in range(10):
            with bench.database.transaction() as db:
                event = ("warning", {"from": number, "turn": turn})
                assert change_job(db, job_id, guards=[], values={}, now=bench.clock.now(), event=event)

    assert in_threads(8, note) == [None] * 8
    events = bench.events(job_id)
    assert [event.seq for event in events] == list(range(1, 82))
    told = [(event.data["from"], event.data["turn"]) for event in events[1:]]
    assert sorted(told) == [(number, turn) for number in range(8) for turn in range(10)]
    for number in range(8):  # and in the order in which each thread told them
        assert [turn for source, turn in told if source == number] == list(range(10))
    assert bench.job(job_id).version == 81


@pytest.mark.parametrize("end", ["succeed", "fail", "hand_back"])
def test_pause_abort_and_end_at_once_leave_one_history(bench: Workbench, end: str) -> None:
    ends = {
        "succeed": lambda context: outcome.succeed(context, {}),
        "fail": lambda context: outcome.fail(context, JobFailed("X", "x")),
        "hand_back": outcome.hand_back,
    }
    for turn in range(6):
        job_id = bench.submit()
        context = bench.context()
        acts = [
            lambda job_id=job_id: bench.do(request_pause, job_id),
            lambda job_id=job_id: bench.do(request_abort, job_id),
            lambda context=context: ends[end](context),
            lambda job_id=job_id: bench.do(request_resume, job_id),
        ]
        random.Random(turn).shuffle(acts)
        results = in_threads(4, lambda number, acts=acts: acts[number]())
        refused = [result for result in results if isinstance(result, Exception)]
        assert all(isinstance(error, IllegalTransition | LeaseLost) for error in refused), refused
        assert_history_is_whole(bench, job_id)
        for left in (bench.do,):
            if bench.state(job_id) in ("QUEUED", "WAITING", "PAUSED"):
                left(request_abort, job_id)
        bench.set(job_id, state=JobState.ABORTED)


def test_storm_of_requests_loses_no_event(bench: Workbench) -> None:
    job_id = bench.submit()
    verbs = [request_pause, request_resume]

    def storm(number: int) -> int:
        rolls = random.Random(number)
        won = 0
        for _ in range(12):
            before = bench.job(job_id).version
            setting = ThrottleSetting(rows_per_s=rolls.randint(1, 9))
            with bench.database.transaction() as db:
                set_throttle(db, job_id, setting, now=bench.clock.now(), actor="ann")
            won += bench.do(rolls.choice(verbs), job_id).version > before
        return won

    results = in_threads(6, storm)
    assert all(isinstance(result, int) for result in results), results
    assert_history_is_whole(bench, job_id)
    kinds = [event.type for event in bench.events(job_id)]
    assert kinds.count("throttle") == 72


def test_guard_that_does_not_hold_changes_nothing(bench: Workbench) -> None:
    job_id = bench.submit()
    before = bench.row(job_id)
    with bench.database.transaction() as db:
        won = change_job(
            db,
            job_id,
            guards=[Job.fencing_token == 7],  # type: ignore[list-item]
            values={"reason": "lost"},
            now=bench.clock.now(),
            event=("warning", {}),
        )
    assert won is False
    assert bench.row(job_id) == before
    assert len(bench.events(job_id)) == 1


def test_rolled_back_change_takes_no_sequence(bench: Workbench) -> None:
    job_id = bench.submit()

    class Broken(Exception):
        """The effect fails after its event was written."""

    def change(db, *, breaks: bool) -> None:
        change_job(db, job_id, guards=[], values={}, now=bench.clock.now(), event=("warning", {}))
        if breaks:
            raise Broken

    for breaks in (True, False):
        try:
            with bench.database.transaction() as db:
                change(db, breaks=breaks)
        except Broken:
            assert breaks
    assert [event.seq for event in bench.events(job_id)] == [1, 2]


def test_child_that_ends_meanwhile_does_not_undo_the_parents_pause(postgresql_bench: Workbench) -> None:
    # The parent's pause read its children, one of them ended before it was asked to pause: the refusal of
    # that one child rolled the whole pause back: the client got 409 for a parent that could well be paused.
    bench = postgresql_bench
    parent = bench.submit("BATCH", store=None)
    child = bench.submit(parent_id=parent)
    sibling = bench.submit(parent_id=parent, store="other")
    bench.set(child, state=JobState.RUNNING, lease_instance="ins_z")
    with ThreadPoolExecutor(1) as pool:
        with bench.database.transaction() as db:  # the runner ends the child; not committed yet
            change_job(
                db, child, guards=[], values={"state": JobState.SUCCEEDED}, now=bench.clock.now(), event=None
            )
            asked = pool.submit(bench.do, request_pause, parent)
            until_somebody_waits_for_a_row(bench)
        assert asked.result(20).state == "PAUSED"
    assert [bench.state(job_id) for job_id in (parent, child, sibling)] == ["PAUSED", "SUCCEEDED", "PAUSED"]


def test_claim_and_abort_at_once_have_one_winner(bench: Workbench) -> None:
    for _ in range(10):
        job_id = bench.submit()
        claimed, _asked = in_threads(
            2, lambda n, job_id=job_id: bench.claim(claimer()) if n == 0 else bench.do(request_abort, job_id)
        )
        if claimed is None:
            assert bench.state(job_id) == "ABORTED"
        else:
            assert claimed.id == job_id
            assert bench.state(job_id) == "ABORTING"
        assert_history_is_whole(bench, job_id)
        bench.set(job_id, state=JobState.ABORTED)


def test_event_rows_go_with_their_job(bench: Workbench) -> None:
    job_id = bench.submit()
    with bench.database.transaction() as db:
        db.execute(text("delete from jobs where id = :id"), {"id": job_id})
    with bench.database.reading() as db:
        assert db.get(JobEvent, (job_id, 1)) is None
