"""Digests of log files: kept by whoever has read a whole file, invalidated before its first change."""

from datetime import datetime

from sqlmodel import Session

from app.protection.rows import LogFileDigest


def _row(db: Session, store_id: str, number: int, now: datetime) -> LogFileDigest:
    row = db.get(LogFileDigest, (store_id, number), with_for_update=True)
    return row or LogFileDigest(store=store_id, number=number, updated_at=now)


def note_digest(
    db: Session, store_id: str, number: int, *, sha256: str, size: int, mtime_ns: int, now: datetime
) -> None:
    """Keep the digest of a file that had this size and this time when all of it was read."""
    row = _row(db, store_id, number, now)
    row.sha256, row.size, row.mtime_ns, row.updated_at = sha256, size, mtime_ns, now
    db.add(row)
    db.flush()


def invalidate_digest(db: Session, store_id: str, number: int, *, now: datetime) -> None:
    """Say before the first write of a pass that the digest of a file will not hold; its generation grows."""
    row = _row(db, store_id, number, now)
    row.sha256 = row.size = row.mtime_ns = None
    row.generation += 1
    row.updated_at = now
    db.add(row)
    db.flush()


def digest_if_current(row: LogFileDigest | None, *, size: int, mtime_ns: int) -> str | None:
    """The digest of a file, if the file still has the size and the time that it had then."""
    if row is None or (row.size, row.mtime_ns) != (size, mtime_ns):
        return None
    return row.sha256
