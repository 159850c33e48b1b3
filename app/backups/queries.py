"""Reading backup sessions and their files."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlmodel import Session, col, select, tuple_

from app.backups.errors import BackupSessionNotFound
from app.backups.models import (
    BackupEndRead,
    BackupFileRead,
    BackupSessionCreated,
    BackupSessionRead,
    ChangedFile,
    read_session,
)
from app.backups.rows import BackupFile, BackupSession
from app.kit.pagination import Page, decode_token, make_page, read_page
from app.protection.digests import digest_if_current
from app.protection.files import name_of
from app.protection.queries import digests_of
from app.protection.rows import LogFileDigest
from spark.targets.files.log_place import log_path

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def get_session(db: Session, store_id: str, session_id: str, *, lock: bool = False) -> BackupSession:
    """The row of a session.

    Raises: BackupSessionNotFound.
    """
    row = db.get(BackupSession, session_id, with_for_update=lock)
    if row is None or row.store != store_id:
        raise BackupSessionNotFound("there is no such backup session of this store")
    return row


def list_sessions(
    db: Session, store_id: str, *, states: Sequence[str], page_size: int, page_token: str
) -> Page[BackupSessionRead]:
    """Sessions of a store, newest first."""
    filters = {"list": "backup-sessions", "store": store_id, "states": sorted(states)}
    query = select(BackupSession).where(BackupSession.store == store_id)
    if states:
        query = query.where(col(BackupSession.state).in_(list(states)))
    return read_page(
        db,
        query,
        col(BackupSession.id),
        filters=filters,
        page_size=page_size,
        page_token=page_token,
        item=read_session,
    )


def files_of(db: Session, session_id: str) -> list[BackupFile]:
    """All files of a session, in the order in which to copy them: one that grows comes last."""
    query = select(BackupFile).where(BackupFile.session_id == session_id)
    return list(db.exec(query.order_by(col(BackupFile.is_growing), col(BackupFile.number))).all())


def list_files(
    db: Session, row: BackupSession, directory: Path, *, page_size: int, page_token: str
) -> Page[BackupFileRead]:
    """The same in pages, as clients see them."""
    filters = {"list": "backup-files", "session": row.id}
    query = select(BackupFile).where(BackupFile.session_id == row.id)
    after = decode_token(page_token, filters, types=[int, int])
    if after:
        place = tuple_(col(BackupFile.is_growing), col(BackupFile.number))
        query = query.where(place > tuple_(bool(after[0]), after[1]))
    query = query.order_by(col(BackupFile.is_growing), col(BackupFile.number)).limit(page_size + 1)
    digests = digests_of(db, row.store)
    return make_page(
        db.exec(query).all(),
        page_size=page_size,
        filters=filters,
        key=lambda file: [int(file.is_growing), file.number],
        item=lambda file: read_file(file, directory, digests),
    )


def read_file(file: BackupFile, directory: Path, digests: Mapping[int, LogFileDigest]) -> BackupFileRead:
    """Show a file of a session to a client."""
    known = digests.get(file.number)
    return BackupFileRead(
        name=name_of(file.number),
        path=str(log_path(directory, file.number)),
        size=file.size,
        device=int(file.device),
        inode=int(file.inode),
        mtime=_EPOCH + timedelta(microseconds=file.mtime_ns // 1000),
        growing=file.is_growing,
        digest=digest_if_current(known, size=file.size, mtime_ns=file.mtime_ns),
        erasure_generation=known.generation if known else 0,
        released_at=file.released_at,
        fault=file.fault,
    )


def read_created(db: Session, row: BackupSession, directory: Path) -> BackupSessionCreated:
    """Show a session that has just become ACTIVE, with its files."""
    digests = digests_of(db, row.store)
    files = [read_file(file, directory, digests) for file in files_of(db, row.id)]
    return BackupSessionCreated(**read_session(row).model_dump(), files=files)


def read_end(db: Session, row: BackupSession) -> BackupEndRead:
    """Show how a session ended."""
    query = select(BackupFile).where(BackupFile.session_id == row.id, col(BackupFile.fault).is_not(None))
    changed = [
        ChangedFile(name=name_of(file.number), fault=file.fault)
        for file in db.exec(query.order_by(col(BackupFile.number))).all()
        if file.fault is not None
    ]
    fields = read_session(row).model_dump()
    return BackupEndRead(**fields | {"valid": bool(row.valid), "changed": changed})
