"""What a verification makes of what it has read: faults, and differences that have an explanation."""

from __future__ import annotations

import json

from app.erase.certificates.verify_claims import claims_of, later_passes
from app.erase.certificates.verify_findings import compare, differing, refused
from app.erase.rows import CycleState, ErasureCycle, ErasureEntries, ErasureFile, FileState
from app.jobs.rows import Job
from app.jobs.states import JobState
from spark.erase.calls.calls import Refusal, RefusalCode, VerifyAnswer
from spark.erase.verified import VerifiedFile
from tests.app.erase.ledger import AFTER, STORE, Ledger, file, proved


def read(number: int, sha256: str, *, size: int = 1000) -> VerifiedFile:
    return VerifiedFile(number, size, 7, sha256, 4, 350)


def test_what_differs_is_a_fault_or_has_an_explanation(ledger: Ledger) -> None:
    states = [
        proved(0),
        proved(1),
        proved(2),
        proved(3),
        file(4, FileState.DELETED),
        file(5, FileState.PENDING),
    ]
    cycle = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, *states)
    later = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(1, sha256_after="c" * 64))
    ledger.add(CycleState.RUNNING, JobState.RUNNING, file(2, FileState.IN_WORK, was_written=True))
    answer = VerifyAnswer(
        files=(read(0, AFTER), read(1, "c" * 64), read(2, "d" * 64), read(3, "e" * 64), read(5, "")),
        reached=((1 << 32) + 50,),
        reached_count=3,
    )
    with ledger.database.reading() as db:
        claims = claims_of(db, STORE, cycle)
        passes = later_passes(db, STORE, cycle, differing(answer, claims))
    found = compare(answer, claims, passes)
    explained = [(each["code"], each["file"]) for each in found.explained]
    assert explained == [
        ("ERASED_AGAIN", "00000001.jdb"),
        ("ERASED_AGAIN", "00000002.jdb"),
        ("GONE", "00000004.jdb"),
    ]
    assert later in found.explained[0]["detail"]
    assert [(each["code"], each["file"], each["offset"]) for each in found.faults] == [
        ("ERASED_ENTRY_IN_USE", "00000001.jdb", 50),
        ("BYTES_DIFFER", "00000003.jdb", None),
    ]
    assert (found.fault_count, found.as_proved) == (4, 1)


def test_records_of_a_file_that_is_not_there_are_told_and_never_ours_to_delete(ledger: Ledger) -> None:
    """A log whose file was taken away with 132 live records was called verified: the file was GONE, "as JE's
    cleaner does", and nothing else was said.
    """
    files = [proved(0), file(1, FileState.DELETED), proved(2)]
    cycle = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, *files)
    answer = VerifyAnswer(files=(read(2, AFTER),), missing_count=135, missing_in={0: 132, 1: 3})
    with ledger.database.reading() as db:
        found = compare(answer, claims_of(db, STORE, cycle), {})
    assert [(each["code"], each["file"]) for each in found.explained] == [
        ("RECORDS_MISSING", "00000000.jdb"),
        ("GONE", "00000000.jdb"),
        ("GONE", "00000001.jdb"),
    ]
    assert "132" in found.explained[0]["detail"]
    [fault] = found.faults
    assert (fault["code"], fault["file"], found.fault_count) == ("ERASED_ENTRY_IN_USE", "00000001.jdb", 3)


def test_later_cycle_that_only_its_certificate_knows_explains_too(ledger: Ledger) -> None:
    cycle = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(1))
    later = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(1, sha256_after="c" * 64))
    ledger.issue(later)
    with ledger.database.transaction() as db:
        job_id = db.get_one(ErasureCycle, later).job_id
        db.delete(db.get_one(ErasureFile, (later, 1)))
        db.flush()
        db.delete(db.get_one(ErasureCycle, later))
        db.flush()
    with ledger.database.reading() as db:
        assert db.get(Job, job_id) is not None
        passes = later_passes(db, STORE, cycle, [1])
    assert [(each.cycle_id, each.sha256) for each in passes[1]] == [(later, "c" * 64)]


def test_changed_bytes_are_not_explained_by_a_later_pass_with_another_hash(ledger: Ledger) -> None:
    cycle = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(1))
    ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(1, sha256_after="c" * 64))
    answer = VerifyAnswer(files=(read(1, "f" * 64),))
    with ledger.database.reading() as db:
        claims = claims_of(db, STORE, cycle)
        found = compare(answer, claims, later_passes(db, STORE, cycle, [1]))
    assert [each["code"] for each in found.faults] == ["BYTES_DIFFER"]


def test_entries_that_are_kept_are_asked_for_and_a_broken_log_is_a_fault(ledger: Ledger) -> None:
    cycle = ledger.add(CycleState.RUNNING, JobState.RUNNING, proved(0), file(1, FileState.IN_WORK))
    with ledger.database.transaction() as db:
        db.add(ErasureEntries(cycle_id=cycle, number=0, entries=b"0"))
        db.add(ErasureEntries(cycle_id=cycle, number=1, entries=b"1"))
    with ledger.database.reading() as db:
        claims = claims_of(db, STORE, cycle)
    assert [each.entries for each in claims.files.values()] == [b"0", b""]
    refusal = Refusal(RefusalCode.LOG_REFUSED, "a hole", "TREE_BROKEN", "00000001.jdb", 77)
    [fault] = refused(refusal).faults
    assert fault == {"code": "TREE_BROKEN", "file": "00000001.jdb", "offset": 77, "detail": "a hole"}
    assert json.dumps(fault)
