"""Reading protections and digests."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import or_
from sqlmodel import Session, col, select

from app.kit.pagination import Page, read_page
from app.protection.errors import ProtectionNotFound
from app.protection.files import covers
from app.protection.models import ProtectionRead, read_protection
from app.protection.rows import LogFileDigest, Protection, ProtectionKind, ProtectionState

SPANS_MAX = 1_000
ACTIVE_MAX = 32
"""Active protections of one store: the control file has room for RANGES_MAX of each, and some to spare."""


def get_protection(db: Session, store_id: str, protection_id: str, *, lock: bool = False) -> Protection:
    """The row of a protection.

    Raises: ProtectionNotFound.
    """
    row = db.get(Protection, protection_id, with_for_update=lock)
    if row is None or row.store != store_id:
        raise ProtectionNotFound("there is no such protection of this store")
    return row


def list_protections(
    db: Session,
    store_id: str,
    *,
    states: Sequence[str],
    kinds: Sequence[str],
    page_size: int,
    page_token: str,
) -> Page[ProtectionRead]:
    """Protections of a store, newest first."""
    filters = {"list": "protections", "store": store_id, "states": sorted(states), "kinds": sorted(kinds)}
    query = select(Protection).where(Protection.store == store_id)
    if states:
        query = query.where(col(Protection.state).in_(list(states)))
    if kinds:
        query = query.where(col(Protection.kind).in_(list(kinds)))
    return read_page(
        db,
        query,
        col(Protection.id),
        filters=filters,
        page_size=page_size,
        page_token=page_token,
        item=read_protection,
    )


def backup_spans(db: Session, store_id: str, *, since: datetime) -> list[tuple[datetime, datetime]]:
    """When backups that went through Lethe began and ended, or will at the latest; those of a while."""
    kinds = [ProtectionKind.BACKUP.value, ProtectionKind.NETWORK_RESTORE.value]
    query = (
        select(Protection)
        .where(Protection.store == store_id, col(Protection.kind).in_(kinds))
        .where(or_(col(Protection.ended_at).is_(None), col(Protection.ended_at) >= since))
        .order_by(col(Protection.id).desc())
        .limit(SPANS_MAX)
    )
    return [(row.created_at, row.ended_at or row.lease_expires_at) for row in db.exec(query).all()]


def active_protections(db: Session, store_id: str, *, now: datetime) -> list[Protection]:
    """The protections of a store that hold now, oldest first; one past its lease holds nothing."""
    query = (
        select(Protection)
        .where(
            Protection.store == store_id,
            Protection.state == ProtectionState.ACTIVE,
            col(Protection.lease_expires_at) > now,
        )
        .order_by(col(Protection.id))
    )
    return list(db.exec(query).all())


def count_active(db: Session, store_id: str) -> int:
    """How many protections of a store have not ended; those past their lease count until that is written."""
    query = select(Protection.id).where(
        Protection.store == store_id, Protection.state == ProtectionState.ACTIVE
    )
    return len(db.exec(query).all())


def due_of(db: Session, store_id: str) -> list[str]:
    """The protections of a store that the control file may still show larger than they are."""
    query = select(Protection.id).where(Protection.store == store_id, col(Protection.control_due).is_(True))
    return list(db.exec(query).all())


def protected_files(
    db: Session, store_id: str, numbers: Iterable[int], *, now: datetime
) -> dict[int, Protection]:
    """Which of the files are protected now, each with the oldest protection that covers it."""
    active = [(row, row.file_ranges) for row in active_protections(db, store_id, now=now)]
    found: dict[int, Protection] = {}
    for number in numbers:
        holder = next((row for row, ranges in active if covers(ranges, number)), None)
        if holder is not None:
            found[number] = holder
    return found


def digests_of(db: Session, store_id: str) -> dict[int, LogFileDigest]:
    """What is known of the files of a store, by number; `sha256` is None where nothing holds any more."""
    rows = db.exec(select(LogFileDigest).where(LogFileDigest.store == store_id)).all()
    return {row.number: row for row in rows}
