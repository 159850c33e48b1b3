"""Rules of backup sessions, on protection.

Invariants:
- a session's protection is written with it, and ends in the transaction in which the session does;
- ACTIVE is said only after the proof that nobody writes to its files any more;
- a session that has ended says the same for ever; `valid` is true only if each file that had to stay as it
  was is so, by stat, while the protection still held.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlmodel import Session, col, select

from app.auth.service import Caller
from app.backups.errors import (
    BackupSessionEnded,
    BackupSessionExpired,
    BackupSessionFailed,
    BackupSessionPreparing,
    NotPartOfSession,
)
from app.backups.looking import Seen, fault_of
from app.backups.models import BackupCreate
from app.backups.queries import files_of
from app.backups.rows import BackupFile, BackupSession, BackupState
from app.errors import ServiceError
from app.feed.writing import BACKUP, announce
from app.kit.ids import new_id
from app.kit.instants import instant_text
from app.outbox.facts import Fact
from app.outbox.writing import tell
from app.protection.errors import some_names
from app.protection.files import name_of
from app.protection.rows import Protection, ProtectionKind, ProtectionState
from app.protection.service import (
    NewProtection,
    create_protection,
    end_protection,
    release_files,
    renew_protection,
)
from app.protection.waiting import Silence

PREPARE_GRACE = timedelta(seconds=5)
"""A request that waits notices its own timeout before anybody else calls it failed."""
SESSIONS_PER_PASS = 500


def begin_session(
    db: Session,
    store_id: str,
    body: BackupCreate,
    numbers: Sequence[int],
    *,
    timeout: timedelta,
    caller: Caller,
    owner: str,
    now: datetime,
) -> BackupSession:
    """Write session and protection: from the commit on no eraser chooses these files.

    Raises: TooManyProtections.
    """
    session_id = new_id("bks")
    name = body.label or body.tool or session_id
    kind = ProtectionKind(body.mode.value)
    new = NewProtection(kind, name[:100], body.lease, numbers=numbers, backup_session_id=session_id)
    protection = create_protection(db, store_id, new, caller=caller, now=now)
    protection.lease_expires_at = now + timeout + PREPARE_GRACE + body.lease
    db.add(protection)
    row = BackupSession(
        id=session_id,
        store=store_id,
        mode=body.mode,
        state=BackupState.PREPARING,
        tool=body.tool,
        label=body.label,
        lease=body.lease,
        erase_abort_timeout=timeout,
        protection_id=protection.id,
        requested_by=caller.name,
        token_id=caller.token_id,
        created_at=now,
        prepare_until=now + timeout,
        owner=owner,
    )
    return _written(db, row, now=now)


def activate_session(
    db: Session,
    row: BackupSession,
    seen: Mapping[int, Seen],
    *,
    growing: int | None,
    silence: Silence,
    now: datetime,
) -> BackupSession:
    """Promise the files as they are now. The row is locked, and PREPARING."""
    assert silence.is_proved, "nothing is promised without the proof"
    assert row.state == BackupState.PREPARING, row.state
    protection = _protection_of(db, row)
    row.state = BackupState.ACTIVE
    row.activated_at = now
    row.lease_expires_at = protection.lease_expires_at = now + row.lease
    row.erasure_aborted, row.abort_latency_ms = silence.was_busy, silence.latency_ms
    row.file_count = len(seen)
    row.total_bytes = sum(each.size for each in seen.values())
    db.add(protection)
    db.add_all(
        BackupFile(
            session_id=row.id,
            number=number,
            size=each.size,
            device=str(each.device),
            inode=str(each.inode),
            mtime_ns=each.mtime_ns,
            is_growing=number == growing,
        )
        for number, each in seen.items()
    )
    return _save(db, row, now=now)


def fail_session(db: Session, row: BackupSession, error: ServiceError, *, now: datetime) -> BackupSession:
    """Take the protection back: nothing was promised. The row is locked, and PREPARING."""
    assert row.state == BackupState.PREPARING, row.state
    row.state = BackupState.FAILED
    row.valid = False
    row.ended_at = now
    row.failure = {"code": error.code, "detail": error.detail}
    end_protection(db, _protection_of(db, row), now=now)
    return _save(db, row, now=now)


def require_active_session(row: BackupSession, *, now: datetime) -> None:
    """Raise unless the session's promise holds now.

    Raises: BackupSessionPreparing, BackupSessionFailed, BackupSessionExpired, BackupSessionEnded.
    """
    if row.state == BackupState.PREPARING:
        raise BackupSessionPreparing("it still waits for the eraser")
    if row.state == BackupState.FAILED:
        raise BackupSessionFailed((row.failure or {}).get("detail", "it failed"))
    if row.state in (BackupState.ENDED, BackupState.INVALID):
        raise BackupSessionEnded(f"{row.id} was ended")
    assert row.lease_expires_at is not None, "an active session has a lease"
    if row.state == BackupState.EXPIRED or row.lease_expires_at <= now:
        raise BackupSessionExpired(f"the lease of {row.id} ran out at {row.lease_expires_at.isoformat()}")


def renew_session(
    db: Session, row: BackupSession, *, lease: timedelta | None, now: datetime
) -> BackupSession:
    """Hold the files for longer, from now on. The row is locked."""
    require_active_session(row, now=now)
    protection = renew_protection(db, _protection_of(db, row), lease=lease, now=now)
    row.lease, row.lease_expires_at = protection.lease, protection.lease_expires_at
    return _save(db, row, now=now)


def release_session_files(
    db: Session, row: BackupSession, numbers: Sequence[int], seen: Mapping[int, Seen], *, now: datetime
) -> BackupSession:
    """Give back files that are copied; each is compared while it is still protected. The row is locked.

    Raises: NotPartOfSession.
    """
    require_active_session(row, now=now)
    kept = {file.number: file for file in files_of(db, row.id)}
    foreign = [name_of(number) for number in numbers if number not in kept]
    if foreign:
        raise NotPartOfSession(f"{row.id} does not have {some_names(foreign)}")
    for number in sorted(set(numbers)):
        file = kept[number]
        if file.released_at is None:
            file.fault = fault_of(file, seen.get(number))
            file.released_at = now
            db.add(file)
    release_files(db, _protection_of(db, row), numbers, now=now)
    return _save(db, row, now=now)


def end_session(db: Session, row: BackupSession, seen: Mapping[int, Seen], *, now: datetime) -> BackupSession:
    """Judge every file and give all of them back. The row is locked."""
    require_active_session(row, now=now)
    faults = 0
    for file in files_of(db, row.id):
        if file.released_at is None:
            file.fault = fault_of(file, seen.get(file.number))
            db.add(file)
        faults += file.fault is not None
    row.valid = faults == 0
    row.state = BackupState.ENDED if row.valid else BackupState.INVALID
    row.ended_at = now
    end_protection(db, _protection_of(db, row), now=now)
    if not row.valid:
        _tell_invalid(db, row, faults, now=now)
    return _save(db, row, now=now)


def _tell_invalid(db: Session, row: BackupSession, faults: int, *, now: datetime) -> None:
    data = {"backup_session_id": row.id, "store": row.store, "state": str(row.state), "faults": faults}
    subject = f"stores/{row.store}/backup-sessions/{row.id}"
    tell(db, Fact.BACKUP_INVALID, store=row.store, subject=subject, data=data, now=now)


def expire_sessions(db: Session, *, now: datetime) -> list[BackupSession]:
    """Say of sessions past their lease that they are over; returns them."""
    query = select(BackupSession).where(
        BackupSession.state == BackupState.ACTIVE, col(BackupSession.lease_expires_at) <= now
    )
    rows = list(db.exec(query.limit(SESSIONS_PER_PASS).with_for_update(skip_locked=True)).all())
    for row in rows:
        row.state = BackupState.EXPIRED
        row.valid = False
        row.ended_at = now
        end_protection(db, _protection_of(db, row), now=now, state=ProtectionState.EXPIRED)
        _tell_invalid(db, row, 0, now=now)
        _save(db, row, now=now)
    return rows


def hold_sessions_again(db: Session, *, now: datetime) -> int:
    """Let each that has not ended hold for its lease from now on at least; returns how many there are.

    Their protections are held by `hold_again`. Whose 201 is not written here may have had it all the same.
    """
    living = col(BackupSession.state).in_([BackupState.PREPARING, BackupState.ACTIVE])
    rows = db.exec(select(BackupSession).where(living).with_for_update()).all()
    for row in rows:
        if row.lease_expires_at is None:
            row.prepare_until = max(row.prepare_until, now + row.lease)
        else:
            row.lease_expires_at = max(row.lease_expires_at, now + row.lease)
        _save(db, row, now=now)
    return len(rows)


def overdue_sessions(db: Session, *, now: datetime) -> list[BackupSession]:
    """Sessions that still prepare although nobody can be waiting any more."""
    query = select(BackupSession).where(
        BackupSession.state == BackupState.PREPARING, col(BackupSession.prepare_until) <= now - PREPARE_GRACE
    )
    return list(db.exec(query.limit(SESSIONS_PER_PASS).with_for_update(skip_locked=True)).all())


def _protection_of(db: Session, row: BackupSession) -> Protection:
    protection = db.get(Protection, row.protection_id, with_for_update=True)
    assert protection is not None, "a session has its protection for as long as it lives"
    return protection


def _save(db: Session, row: BackupSession, *, now: datetime) -> BackupSession:
    row.version += 1
    return _written(db, row, now=now)


def _written(db: Session, row: BackupSession, *, now: datetime) -> BackupSession:
    """Write the row, with its event in the feed."""
    lease = row.lease_expires_at
    data = {
        "state": str(row.state),
        "valid": row.valid,
        "lease_expires_at": None if lease is None else instant_text(lease),
        "file_count": row.file_count,
        "total_bytes": row.total_bytes,
    }
    db.add(row)
    announce(
        db,
        "backup",
        kind=BACKUP,
        store=row.store,
        subject=f"stores/{row.store}/backup-sessions/{row.id}",
        seq=row.version,
        data=data,
        now=now,
    )
    db.flush()
    return row
