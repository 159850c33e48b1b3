"""Certificates made of rows: every end of a cycle, two issuers at once, and what outlives the rows."""

from __future__ import annotations

import json
import os
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lethe_client.certificates import verify_certificate
from sqlmodel import select

from app.erase.certificates.certificate import document_of, issue_missing
from app.erase.certificates.example import CERTIFICATE_EXAMPLE, KEY_ID
from app.erase.certificates.rows import ErasureCertificate, SigningKey
from app.erase.certificates.verify_claims import claims_of
from app.erase.errors import CycleNotEnded
from app.erase.rows import CycleState, ErasureCycle, FileState
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.ids import new_id
from app.protection.rows import Protection, ProtectionKind, ProtectionState
from app.retention import forget_rows
from app.settings import Settings
from app.stores.rows import Store
from tests.app.erase.ledger import AFTER, STORE, Ledger, file, proved
from tests.app.hooks.outboxes import events_of, make_hook

IDENTITY = {"device": 1, "inode": 2**63 + 1, "size": 1000, "links": 1, "mtime_ns": 1795163066 * 10**9}


def largest_number(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return max(map(largest_number, value), default=0)
    return value if isinstance(value, int) else 0


def test_certificate_says_what_the_rows_say(ledger: Ledger) -> None:
    cycle = ledger.add(
        CycleState.INCOMPLETE,
        JobState.SUCCEEDED,
        proved(0, identity=IDENTITY),
        file(1, FileState.PENDING),
        file(2, FileState.NOT_SELECTED, causes=[["TAIL_OF_LOG", "the last file"]]),
        file(3, FileState.UNPROVEN, is_proved=False, refusal={"code": "UNPROVEN", "detail": "x"}),
        ended_at=ledger.clock.now() + timedelta(minutes=5),
        incomplete={"NOT_REACHED": ["00000001.jdb"]},
    )
    said = ledger.said(cycle)
    assert largest_number(said) < 2**53, "many programs read a JSON number as a double"
    assert said["files"][0]["identity"]["inode"] == str(2**63 + 1)
    assert said["cycle"]["state"] == "INCOMPLETE"
    assert (said["cycle"]["requested_by"], said["cycle"]["reason"]) == ("ann", "of age")
    assert said["totals"] == {
        "files": 4,
        "files_erased_and_proved": 1,
        "entries_erased_and_proved": 4,
        "erased_and_proved_by_reason": {"OLD_NODE": [1, 50], "SUPERSEDED": [3, 300]},
        "files_remaining": 1,
        "bytes_written": 0,
        "fsyncs": 2,
    }
    assert said["plan"]["vetoed"] == [{"lsn": "0x1/0x26", "reason": "SUPERSEDED"}]
    assert (said["plan"]["vetoed_count"], said["plan"]["missing_count"]) == (7, 2)
    assert said["files"][0]["fsync_times"] == ["PT0.0015S", "PT0.25S"]
    assert (said["cycle"]["min_file_age"], said["cycle"]["duration"]) == ("PT0S", "PT1M0.5S")
    assert (said["files"][3]["proved"], said["files"][3]["refusal"]["code"]) == (False, "UNPROVEN")
    readable = {each["code"]: each for each in said["stays_readable"]}
    assert readable["REMAINING"]["files"] == ["00000001.jdb"]
    assert readable["TAIL_OF_LOG"]["files"] == ["00000002.jdb"]
    assert readable["KEPT"]["entries"] == {"SWITCHED_OFF": [2, 20]}
    assert "OLD_NODES" in readable


@pytest.mark.parametrize(
    ("state", "job_state", "shown"),
    [
        (CycleState.COMPLETE, JobState.SUCCEEDED, "COMPLETE"),
        (CycleState.INCOMPLETE, JobState.SUCCEEDED, "INCOMPLETE"),
        (CycleState.EXPIRED, JobState.ABORTED, "EXPIRED"),
        (CycleState.DROPPED, JobState.ABORTED, "DROPPED"),
        (CycleState.ABORTED, JobState.ABORTED, "ABORTED"),
        (CycleState.FAILED, JobState.FAILED, "FAILED"),
        (CycleState.RUNNING, JobState.ABORTED, "ABORTED"),  # nobody has settled it yet
        (CycleState.SUSPENDED, JobState.FAILED, "FAILED"),
    ],
)
def test_every_end_has_a_certificate(
    ledger: Ledger, state: CycleState, job_state: JobState, shown: str
) -> None:
    cycle = ledger.add(state, job_state, plan=None)
    said = ledger.said(cycle)
    assert (said["cycle"]["state"], said["plan"], said["files"]) == (shown, None, [])
    assert said["cycle"]["ended_at"] is not None


@pytest.mark.parametrize(
    "job_state", [JobState.QUEUED, JobState.RUNNING, JobState.WAITING, JobState.PAUSED, JobState.ABORTING]
)
def test_cycle_whose_job_has_not_ended_has_none(ledger: Ledger, job_state: JobState) -> None:
    cycle = ledger.add(CycleState.RUNNING, job_state)
    with pytest.raises(CycleNotEnded):
        ledger.issue(cycle)
    assert issue_missing(ledger.database, ledger.settings, instance_id="i", now=ledger.clock.now()) == 0


def test_two_that_issue_at_once_give_the_same_bytes(ledger: Ledger) -> None:
    cycle = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(0))
    hook = make_hook(ledger.database)
    found: list[bytes] = []
    barrier = threading.Barrier(4)

    def issue() -> None:
        barrier.wait()
        ledger.clock.advance(1)  # so that each would say another time
        found.append(document_of(ledger.issue(cycle)))

    threads = [threading.Thread(target=issue) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(found), len(set(found))) == (4, 1)
    told = [event for event in events_of(ledger.database) if event.type == "lethe.certificate.issued"]
    assert [event.data["cycle_id"] for event in told] == [cycle], hook
    with ledger.database.reading() as db:
        assert len(db.exec(select(SigningKey.id)).all()) == 1


def test_protections_that_were_met_are_named(ledger: Ledger) -> None:
    now = ledger.clock.now()

    def held(name: str, ranges: list[Any], **fields: Any) -> Protection:
        return Protection(
            id=new_id("prt"),
            store=STORE,
            kind=ProtectionKind.BACKUP,
            name=name,
            state=ProtectionState.ENDED if "ended_at" in fields else ProtectionState.ACTIVE,
            lease=timedelta(hours=1),
            lease_expires_at=now + timedelta(hours=9),
            requested_by="ann",
            ranges=ranges,
            **fields,
        )

    hour = timedelta(hours=1)
    rows = [
        held("before", [[0, None]], created_at=now - 2 * hour, ended_at=now - hour),
        held("during", [[0, 1]], created_at=now + hour / 4, ended_at=now + hour / 3),
        held("still", [[1, 1]], created_at=now + hour / 4),
        held("elsewhere", [[9, 9]], created_at=now + hour / 4),
        held("after", [[0, None]], created_at=now + 2 * hour),
    ]
    with ledger.database.transaction() as db:
        db.add_all(rows)
    files = [proved(0), file(1, FileState.PENDING)]
    said = ledger.said(ledger.add(CycleState.INCOMPLETE, JobState.SUCCEEDED, *files))
    met = said["protections"]
    assert [(each["name"], each["files_of_this_cycle"]) for each in met["met"]] == [
        ("during", 2),
        ("still", 1),
    ]
    assert met["met"][0]["ranges"] == [["00000000.jdb", "00000001.jdb"]]
    assert (met["count"], met["files_held_at_the_end"]) == (2, ["00000001.jdb"])
    readable = {each["code"]: each for each in said["stays_readable"]}
    assert readable["PROTECTED"]["files"] == ["00000001.jdb"]


# -- the directory


def test_files_beside_the_log_are_named_whatever_their_names_are(ledger: Ledger, directory: Path) -> None:
    for name in (b"je.stat.csv", b"je.lck", b"00000000.jdb", b"00000001.jdb.bad", b"\xff\xfe.csv", b"notes"):
        (directory / os.fsdecode(name)).touch()
    said = ledger.said(ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED))
    readable = {each["code"]: each for each in said["stays_readable"]}
    assert readable["OTHER_FILES"]["files"] == ["je.stat.csv", "\ufffd\ufffd.csv"]
    assert said["environment"]["medium"]["file_system"]
    assert said["environment"]["inode"] == str(directory.stat().st_ino)


def test_files_of_a_log_that_was_restored_are_not_those_that_were_proved(
    ledger: Ledger, directory: Path
) -> None:
    """The log was restored from a backup before the cycle ended: its certificate said ERASED and proved of
    files whose data was readable again, and nothing else.
    """
    files = []
    for number in range(3):
        path = directory / f"{number:08x}.jdb"
        path.write_bytes(bytes(1000))
        status = path.stat()
        known = {"device": status.st_dev, "inode": status.st_ino, "size": 1000, "links": 1}
        files.append(proved(number, identity=known | {"mtime_ns": 1}))
    cycle = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, *files)
    (directory / "restored").write_bytes(bytes(1000))
    (directory / "restored").rename(directory / "00000001.jdb")
    (directory / "00000002.jdb").unlink()
    said = ledger.said(cycle)
    assert [each["files"] for each in said["stays_readable"] if each["code"] == "FILE_REPLACED"] == [
        ["00000001.jdb"]
    ]


@pytest.mark.parametrize("how", ["gone", "other_path", "store_removed", "root", "device"])
def test_directory_that_is_not_the_one_is_not_looked_at(ledger: Ledger, directory: Path, how: str) -> None:
    identity = {"device": directory.stat().st_dev, "inode": 1, "size": 1, "links": 1, "mtime_ns": 1}
    path = str(directory)
    if how == "gone":
        directory.rmdir()
    elif how == "other_path":
        path = "/srv/another"
    elif how == "store_removed":
        ledger.remove(Store, STORE)
    elif how == "root":
        roots = {"allowed_roots": [directory / "below"]}
        ledger.settings = ledger.settings.model_copy(update=roots)
    else:
        identity["device"] += 1
    files = [proved(0, identity=identity)]
    said = ledger.said(ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, *files, path=path))
    shown = said["environment"]
    assert (shown["path"], shown["medium"], bool(shown["unreadable"])) == (path, None, True)
    assert "inode" not in shown


def test_cycle_of_other_runners_is_left_to_them_for_a_day(ledger: Ledger) -> None:
    cycle = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(0))
    with ledger.database.transaction() as db:
        job = db.get_one(Job, db.get_one(ErasureCycle, cycle).job_id)
        job.runs_on = ["zone-b"]
        db.add(job)

    def issued(settings: Settings) -> int:
        return issue_missing(ledger.database, settings, instance_id="i", now=ledger.clock.now())

    assert issued(ledger.settings) == 0
    there = ledger.settings.model_copy(update={"labels": ["zone-b"]})
    ledger.clock.advance(26 * 3600)
    assert issued(ledger.settings) == 1, "nobody else did it"
    assert issued(there) == 0


# -- what outlives what


def test_certificate_is_issued_before_its_job_is_forgotten_and_outlives_it(ledger: Ledger) -> None:
    with ledger.database.reading() as db:
        old = ledger.database.now(db) - timedelta(days=200)
    cycle = ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(0))
    with ledger.database.transaction() as db:
        job = db.get_one(Job, db.get_one(ErasureCycle, cycle).job_id)
        job.finished_at = old
        db.add(job)
    assert forget_rows(ledger.database)["jobs"] == 0, "its certificate is not there yet"
    assert issue_missing(ledger.database, ledger.settings, instance_id="i", now=old) == 1
    document = document_of(ledger.issue(cycle))
    gone = forget_rows(ledger.database)
    assert (gone["jobs"], gone["certificates"]) == (1, 0)
    with ledger.database.reading() as db:
        assert db.get(ErasureCycle, cycle) is None
        claims = claims_of(db, STORE, cycle)
    assert document_of(ledger.issue(cycle)) == document
    assert (claims.path, claims.files[0].sha256, claims.files[0].size) == (str(ledger.directory), AFTER, 1000)
    with ledger.database.transaction() as db:
        row = db.get_one(ErasureCertificate, cycle)
        row.issued_at = old - timedelta(days=4000)
        db.add(row)
    assert forget_rows(ledger.database)["certificates"] == 1


def test_example_of_the_description_is_one_that_verifies_and_says_what_others_say(ledger: Ledger) -> None:
    found = verify_certificate(json.dumps(CERTIFICATE_EXAMPLE).encode(), trusted=frozenset({KEY_ID}))
    said = ledger.said(ledger.add(CycleState.COMPLETE, JobState.SUCCEEDED, proved(0)))
    example = found.certificate
    assert set(example) == set(said)
    for name in ("cycle", "plan", "totals", "protections"):
        assert set(example[name]) == set(said[name]), name
    assert set(example["files"][0]) == set(said["files"][0])
