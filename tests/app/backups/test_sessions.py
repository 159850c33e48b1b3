"""Backup sessions as rows: promised, renewed, released, judged, run out, and settled after a crash."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from app.backups.errors import (
    BackupSessionEnded,
    BackupSessionExpired,
    BackupSessionFailed,
    BackupSessionPreparing,
    NotPartOfSession,
)
from app.backups.looking import growing_file, look
from app.backups.models import BackupCreate
from app.backups.queries import files_of, get_session, list_files, read_created, read_end
from app.backups.rows import BackupFile, BackupSession, BackupState, FileFault
from app.backups.service import (
    PREPARE_GRACE,
    activate_session,
    begin_session,
    end_session,
    fail_session,
    release_session_files,
    renew_session,
)
from app.backups.settling import keep_backups, settle_sessions
from app.db import Database
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.protection.control import Environment, sync
from app.protection.errors import EraseAbortTimeout
from app.protection.rows import ProtectionState
from app.protection.service import (
    get_protection,
    invalidate_digest,
    note_digest,
    protected_files,
    protection_key,
)
from app.protection.waiting import Silence
from app.settings import Settings
from app.stores.rows import Store
from spark.targets.files import ofd_lock
from spark.targets.files.control_file import ControlFile
from tests.app.fake_clock import FakeClock
from tests.app.hooks.outboxes import events_of, make_hook
from tests.app.protection.conftest import CALLER, ON_SQLITE

TIMEOUT = timedelta(seconds=30)
QUIET = Silence(is_proved=True, was_busy=False, latency_ms=1.5)


def begin(database: Database, store: Store, numbers: list[int], **body: object) -> str:
    request = BackupCreate.model_validate({"tool": "test", **body})
    with database.transaction() as db:
        row = begin_session(
            db,
            store.id,
            request,
            numbers,
            timeout=TIMEOUT,
            caller=CALLER,
            owner="ins_1",
            now=database.now(db),
        )
        return row.id


def activate(
    database: Database,
    store: Store,
    environment: Environment,
    numbers: list[int],
    *,
    growing: int | None = None,
    **body: object,
) -> str:
    session_id = begin(database, store, numbers, **body)
    with database.transaction() as db:
        row = get_session(db, store.id, session_id, lock=True)
        seen = look(environment.directory, numbers)
        activate_session(db, row, seen, growing=growing, silence=QUIET, now=database.now(db))
    return session_id


def end(database: Database, store: Store, environment: Environment, session_id: str) -> BackupSession:
    with database.transaction() as db:
        numbers = [file.number for file in files_of(db, session_id)]
        row = get_session(db, store.id, session_id, lock=True)
        return end_session(db, row, look(environment.directory, numbers), now=database.now(db))


def test_files_are_protected_before_anything_is_promised(database: Database, store: Store) -> None:
    session_id = begin(database, store, [1, 2])
    with database.reading() as db:
        now = database.now(db)
        row = get_session(db, store.id, session_id)
        assert row.state == BackupState.PREPARING
        assert {each.id for each in protected_files(db, store.id, range(5), now=now).values()} == {
            row.protection_id
        }
        for act in (renew_session, end_session):
            with pytest.raises(BackupSessionPreparing):
                act(db, row, **({"lease": None} if act is renew_session else {"seen": {}}), now=now)


def test_session_has_the_files_as_they_were(
    database: Database, store: Store, environment: Environment
) -> None:
    with database.transaction() as db:
        now = database.now(db)
        status = os.stat(environment.directory / "00000001.jdb")
        invalidate_digest(db, store.id, 1, now=now)
        note_digest(
            db, store.id, 1, sha256="ab" * 32, size=status.st_size, mtime_ns=status.st_mtime_ns, now=now
        )
        note_digest(db, store.id, 2, sha256="cd" * 32, size=1, mtime_ns=1, now=now)
    session_id = activate(database, store, environment, [0, 1, 2], growing=0)
    with database.reading() as db:
        row = get_session(db, store.id, session_id)
        shown = read_created(db, row, environment.directory)
        first = list_files(db, row, environment.directory, page_size=2, page_token="")
        rest = list_files(db, row, environment.directory, page_size=2, page_token=first.next_page_token)
    assert [(file.name, file.growing) for file in shown.files] == [
        ("00000001.jdb", False),
        ("00000002.jdb", False),
        ("00000000.jdb", True),
    ]
    assert [(file.digest, file.erasure_generation) for file in shown.files] == [
        ("ab" * 32, 1),
        (None, 0),
        (None, 0),
    ]
    assert [*first.items, *rest.items] == shown.files
    assert (row.file_count, row.total_bytes) == (3, 1000 + 1001 + 1002)


def test_end_judges_each_file_once_and_for_ever(
    database: Database, store: Store, environment: Environment
) -> None:
    session_id = activate(database, store, environment, [0, 1, 2, 3], growing=3)
    os.utime(environment.directory / "00000001.jdb", ns=(5, 5))
    (environment.directory / "00000002.jdb").unlink()
    with (environment.directory / "00000003.jdb").open("ab") as growing:
        growing.write(b"more")
    make_hook(database)
    row = end(database, store, environment, session_id)
    assert (row.state, row.valid) == (BackupState.INVALID, False)
    [event] = events_of(database)
    assert (event.type, event.store) == ("lethe.backup.invalid", store.id)
    assert (event.data["backup_session_id"], event.data["state"]) == (session_id, "INVALID")
    with database.transaction() as db:
        found = read_end(db, get_session(db, store.id, session_id))
        assert [(each.name, each.fault) for each in found.changed] == [
            ("00000001.jdb", FileFault.TOUCHED),
            ("00000002.jdb", FileFault.VANISHED),
        ]
        assert get_protection(db, store.id, row.protection_id).state == ProtectionState.ENDED
        with pytest.raises(BackupSessionEnded):
            end_session(db, get_session(db, store.id, session_id), {}, now=database.now(db))


def test_released_file_is_judged_then_and_not_again(
    database: Database, store: Store, environment: Environment
) -> None:
    session_id = activate(database, store, environment, [1, 2])
    with database.transaction() as db:
        now = database.now(db)
        row = get_session(db, store.id, session_id, lock=True)
        with pytest.raises(NotPartOfSession, match=r"00000004\.jdb"):
            release_session_files(db, row, [1, 4], {}, now=now)
        release_session_files(db, row, [1], look(environment.directory, [1]), now=now)
        assert set(protected_files(db, store.id, range(5), now=now)) == {2}
    os.utime(environment.directory / "00000001.jdb", ns=(5, 5))
    assert end(database, store, environment, session_id).valid is True


@ON_SQLITE
def test_lease_runs_out_for_session_and_protection_at_once(
    database: Database, store: Store, environment: Environment, settings: Settings, clock: FakeClock
) -> None:
    session_id = activate(database, store, environment, [1], lease="PT30S")
    clock.advance(29)
    with database.transaction() as db:
        row = get_session(db, store.id, session_id, lock=True)
        renew_session(db, row, lease=timedelta(seconds=40), now=clock.now())
        assert row.lease_expires_at == clock.now() + timedelta(seconds=40)
        held = get_protection(db, store.id, row.protection_id)
        assert held.lease_expires_at == row.lease_expires_at
    clock.advance(40)
    with database.transaction() as db, pytest.raises(BackupSessionExpired) as raised:
        end_session(db, get_session(db, store.id, session_id), {}, now=clock.now())
    assert raised.value.extra == {"valid": False}
    make_hook(database)
    sync(database, environment, clock=clock)
    keep_backups(database, settings, clock=clock)
    assert [(event.type, event.data["state"]) for event in events_of(database)] == [
        ("lethe.backup.invalid", "EXPIRED")
    ]
    with database.reading() as db:
        row = get_session(db, store.id, session_id)
        assert (row.state, row.valid) == (BackupState.EXPIRED, False)
        held = get_protection(db, store.id, row.protection_id)
        assert (held.state, held.control_due) == (ProtectionState.EXPIRED, False)
    with ControlFile.open(environment.directory, create=False) as control:
        assert control.read().ranges == ()


@ON_SQLITE
def test_preparation_that_a_crash_has_left_fails_after_its_timeout(
    database: Database, store: Store, environment: Environment, settings: Settings, clock: FakeClock
) -> None:
    session_id = begin(database, store, [1, 2])
    sync(database, environment, clock=clock)
    clock.advance(TIMEOUT.total_seconds() + PREPARE_GRACE.total_seconds() - 1)
    settle_sessions(database)
    with database.reading() as db:
        assert get_session(db, store.id, session_id).state == BackupState.PREPARING
        assert set(protected_files(db, store.id, range(5), now=clock.now())) == {1, 2}
    clock.advance(1)
    keep_backups(database, settings, clock=clock)
    with database.transaction() as db:
        row = get_session(db, store.id, session_id)
        assert (row.state, row.failure and row.failure["code"]) == ("FAILED", "ERASE_ABORT_TIMEOUT")
        assert protected_files(db, store.id, range(5), now=clock.now()) == {}
        with pytest.raises(BackupSessionFailed):
            renew_session(db, row, lease=None, now=clock.now())
    with ControlFile.open(environment.directory, create=False) as control:
        assert control.read().ranges == ()


def test_failed_session_gives_its_files_back(database: Database, store: Store) -> None:
    session_id = begin(database, store, [1])
    with database.transaction() as db:
        now = database.now(db)
        row = fail_session(db, get_session(db, store.id, session_id), EraseAbortTimeout("x"), now=now)
        assert (row.state, row.valid, row.failure) == (
            BackupState.FAILED,
            False,
            {"code": "ERASE_ABORT_TIMEOUT", "detail": "x"},
        )
        assert protected_files(db, store.id, [1], now=now) == {}


def waiting_job(database: Database, store: Store) -> str:
    with database.transaction() as db:
        now = database.now(db)
        later = now + timedelta(hours=1)
        job = Job(
            id="job_waits",
            kind="ERASE",
            store=store.id,
            state=JobState.WAITING,
            requested_by="tester",
            created_at=now,
            updated_at=now,
            not_before=later,
            wake_key=protection_key(store.id),
        )
        db.add(job)
        return job.id


def test_end_of_a_session_wakes_who_waits_for_the_files(
    database: Database, store: Store, environment: Environment
) -> None:
    session_id = activate(database, store, environment, [1])
    job_id = waiting_job(database, store)
    end(database, store, environment, session_id)
    with database.reading() as db:
        job = db.get(Job, job_id)
        assert job is not None
        assert job.not_before is not None
        assert job.not_before <= database.now(db)


def test_link_in_place_of_a_file_is_no_file(environment: Environment) -> None:
    path = environment.directory / "00000001.jdb"
    path.rename(environment.directory / "elsewhere")
    path.symlink_to("elsewhere")
    assert sorted(look(environment.directory, range(3))) == [0, 2]


def test_round_of_ours_is_no_engine(environment: Environment) -> None:
    numbers = list(range(5))
    assert growing_file(environment, numbers) is None
    lock = environment.directory / "je.lck"
    lock.touch()
    assert growing_file(environment, numbers) is None
    with lock.open("r+b") as held:
        assert ofd_lock.try_exclusive(held.fileno(), 0)
        assert growing_file(environment, numbers) == 4, "somebody whom we do not know"
        with ControlFile.open(environment.directory, create=True) as writer:
            assert writer.try_lock_file(2, exclusive=True)
            assert growing_file(environment, numbers) is None, "a round holds its file's byte too"


def test_file_of_a_session_is_forgotten_with_it(
    database: Database, store: Store, environment: Environment
) -> None:
    session_id = activate(database, store, environment, [1])
    with database.transaction() as db:
        db.delete(get_session(db, store.id, session_id))
    with database.reading() as db:
        assert db.get(BackupFile, (session_id, 1)) is None
