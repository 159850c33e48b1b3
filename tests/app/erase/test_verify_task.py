"""The task of a verification with hands that answer what a test says: what ends it, what is waited for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.erase.certificates.models import VerifyRequest
from app.erase.certificates.verify_service import submit_verify
from app.erase.certificates.verify_task import run_erasure_verify
from app.erase.cycle.attempt import Workshop
from app.erase.errors import CycleNotFound
from app.erase.rows import CycleState, FileState
from app.errors import Conflict
from app.jobs.errors import JobFailed, JobWaiting
from app.jobs.running.context import JobContext
from app.jobs.states import JobState
from app.stores.models import SuspendRequest
from app.stores.resting import suspend_store
from app.stores.service import get_store
from spark.erase.calls.calls import (
    Refusal,
    RefusalCode,
    VerifyAnswer,
    VerifyCall,
)
from spark.erase.hands.hands import HandsLost
from spark.erase.verified import VerifiedFile
from tests.app.erase.ledger import AFTER, STORE, Ledger, file, proved
from tests.app.jobs.workbench import Workbench

CALLER = Caller("tok_test", "ann", frozenset({Scope.JOBS_READ}), None)
GOOD = VerifyAnswer(files=(VerifiedFile(0, 1000, 7, AFTER, 4, 350),))


class Hands:
    """Hands that know one answer."""

    def __init__(self, answer: VerifyAnswer | None) -> None:
        self.answer = answer
        self.asked: list[VerifyCall] = []
        self.is_open = True

    def verify(self, call: VerifyCall) -> VerifyAnswer:
        self.asked.append(call)
        if self.answer is None:
            raise HandsLost("killed")
        return self.answer

    def kill(self) -> None:
        self.answer = None

    def close(self) -> None:
        self.is_open = False


def submitted(ledger: Ledger, cycle: str) -> str:
    with ledger.database.transaction() as db:
        store = get_store(db, STORE)
        asked = VerifyRequest(reason="audit")
        now = ledger.clock.now()
        job = submit_verify(db, store, cycle, asked, caller=CALLER, settings=ledger.settings, now=now)
        return job.id


def run(ledger: Ledger, hands: Hands) -> Any:
    """Run the verification that is due."""
    context = Workbench(ledger.database, ledger.clock, ledger.settings).context()

    def take(_context: JobContext, _asked: Any, *, directory: Path) -> tuple[Any, str]:
        assert directory == ledger.directory
        return hands, "INLINE"

    try:
        return run_erasure_verify(context, workshop=Workshop(take, "prc_1"))
    finally:
        assert not hands.is_open or not hands.asked, "hands were not given back"


def test_all_as_proved_is_said_with_figures(ledger: Ledger) -> None:
    cycle = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(0))
    submitted(ledger, cycle)
    hands = Hands(GOOD)
    result = run(ledger, hands)
    assert (result["verified"], result["files_as_proved"], result["erased_entries"]) == (True, 1, 4)
    [asked] = hands.asked[0].files
    assert (asked.number, asked.size, asked.with_hash) == (0, 1000, True)


def test_fault_fails_the_job_with_all_that_was_found(ledger: Ledger) -> None:
    submitted(ledger, ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(0)))
    with pytest.raises(JobFailed, match=r"00000003\.jdb, offset 9") as failed:
        run(ledger, Hands(replace(GOOD, reached=((3 << 32) + 9,), reached_count=5)))
    assert failed.value.code == "VERIFICATION_FAILED"
    result: Any = failed.value.result
    assert (result["faults_count"], len(result["faults"]), result["verified"]) == (5, 1, False)


@pytest.mark.parametrize(
    ("code", "ref", "error", "said"),
    [
        (RefusalCode.LOG_MOVED, "LOG_FILE_VANISHED", JobWaiting, "LOG_MOVED"),
        (RefusalCode.LOG_REFUSED, "LOG_FILE_CHANGED", JobWaiting, "LOG_MOVED"),
        (RefusalCode.LOG_REFUSED, "TREE_BROKEN", JobFailed, "VERIFICATION_FAILED"),
        (RefusalCode.LOG_REFUSED, "NOT_AN_ENVIRONMENT", JobFailed, "NOT_AN_ENVIRONMENT"),
    ],
)
def test_refusal_is_waited_for_or_a_fault(
    ledger: Ledger, code: RefusalCode, ref: str, error: type[Any], said: str
) -> None:
    submitted(ledger, ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(0)))
    refusal = Refusal(code, f"{ref}: x", ref, "00000000.jdb", 7)
    with pytest.raises(error) as ended:
        run(ledger, Hands(VerifyAnswer(refusal=refusal)))
    assert ended.value.code == said


def test_broken_log_under_a_cycle_at_work_is_read_again(ledger: Ledger) -> None:
    cycle = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(0))
    submitted(ledger, cycle)
    ledger.add(CycleState.RUNNING, JobState.RUNNING, file(0, FileState.IN_WORK, was_written=True))
    refusal = Refusal(RefusalCode.LOG_REFUSED, "x", "LOG_CHECKSUM_WRONG", "00000000.jdb", 7)
    with pytest.raises(JobWaiting) as waiting:
        run(ledger, Hands(VerifyAnswer(refusal=refusal)))
    assert waiting.value.transient


def test_hands_that_are_lost_are_tried_again(ledger: Ledger) -> None:
    submitted(ledger, ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(0)))
    with pytest.raises(JobWaiting) as waiting:
        run(ledger, Hands(None))
    assert (waiting.value.transient, waiting.value.code) == (True, "HANDS_LOST")


def test_store_that_rests_is_waited_for(ledger: Ledger) -> None:
    submitted(ledger, ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(0)))
    with ledger.database.transaction() as db:
        suspend_store(db, STORE, SuspendRequest(reason="test"), now=ledger.clock.now())
    hands = Hands(GOOD)
    with pytest.raises(JobWaiting):
        run(ledger, hands)
    assert hands.asked == []


def test_cycle_of_another_directory_or_store_is_refused_at_once(ledger: Ledger) -> None:
    moved = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(0), path="/srv/another")
    with pytest.raises(Conflict, match="/srv/another"):
        submitted(ledger, moved)
    foreign = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, store="other")
    with pytest.raises(CycleNotFound):
        submitted(ledger, foreign)
