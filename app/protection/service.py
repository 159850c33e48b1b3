"""Rules of protected sets: the only arbiter of who may touch a file.

Invariants:
- a set only shrinks; a file that it has given back never comes back into it;
- what is kept (`ranges`) is never less than what was asked for (`files`);
- a protection is over by its row: ENDED, or EXPIRED by the metadata database's clock; its ranges leave the
  control file afterwards, and until then `control_due` says so;
- whoever waits for a store's files is woken when one of its protections shrinks or is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import update
from sqlmodel import Session, col, select

from app.auth.service import Caller
from app.feed.writing import PROTECTION, announce
from app.jobs.service import wake
from app.kit.ids import new_id
from app.kit.instants import instant_text
from app.protection.claims import claim_environment, prove_no_writer
from app.protection.digests import digest_if_current, invalidate_digest, note_digest
from app.protection.errors import (
    NotPartOfProtection,
    ProtectionEnded,
    ProtectionExpired,
    TooManyProtections,
    some_names,
)
from app.protection.files import Range, covering, covers, name_of, without
from app.protection.models import LEASE_MAX, RANGES_MAX
from app.protection.queries import (
    ACTIVE_MAX,
    active_protections,
    count_active,
    digests_of,
    get_protection,
    protected_files,
)
from app.protection.rows import Protection, ProtectionKind, ProtectionState
from app.stores.service import get_store

EXPIRED_PER_PASS = 500
TAKEN_IN = "RECOVERED_FOREIGN"


@dataclass(frozen=True, slots=True)
class NewProtection:
    """What a protection is made of: `numbers` or `ranges`."""

    kind: ProtectionKind
    name: str
    lease: timedelta
    numbers: Sequence[int] | None = None
    ranges: Sequence[Range] = ()
    backup_session_id: str | None = None


def protection_key(store_id: str) -> str:
    """The event "a protection of this store has shrunk or is over"."""
    return f"protection:{store_id}"


def create_protection(
    db: Session, store_id: str, new: NewProtection, *, caller: Caller, now: datetime
) -> Protection:
    """Write the row: from its commit on no eraser chooses these files. The control file comes next.

    Raises: StoreNotFound, TooManyProtections.
    """
    get_store(db, store_id, lock=True)  # one at a time, so that the count holds
    if count_active(db, store_id) >= ACTIVE_MAX:
        raise TooManyProtections(ACTIVE_MAX)
    ranges = new.ranges if new.numbers is None else _covering(new.numbers)
    row = Protection(
        id=new_id("prt"),
        store=store_id,
        kind=new.kind,
        name=new.name,
        state=ProtectionState.ACTIVE,
        lease=new.lease,
        lease_expires_at=now + new.lease,
        backup_session_id=new.backup_session_id,
        requested_by=caller.name,
        token_id=caller.token_id,
        created_at=now,
        files=None if new.numbers is None else sorted(set(new.numbers)),
        ranges=[list(each) for each in ranges],
    )
    return _written(db, row, now=now)


def take_in_protection(
    db: Session,
    store_id: str,
    protection_id: str,
    kind: str,
    ranges: Sequence[Range],
    *,
    actor: str,
    now: datetime,
) -> None:
    """Write the row of one that only the control file remembers, with the longest lease that there is.

    One of a kind that only a newer version knows keeps its files as a backup does.
    """
    row = Protection(
        id=protection_id,
        store=store_id,
        kind=ProtectionKind(kind) if kind in list(ProtectionKind) else ProtectionKind.BACKUP,
        name=TAKEN_IN,
        state=ProtectionState.ACTIVE,
        lease=LEASE_MAX,
        lease_expires_at=now + LEASE_MAX,
        requested_by=actor,
        created_at=now,
        ranges=[list(each) for each in ranges],
    )
    _written(db, row, now=now)


def require_active(row: Protection, *, now: datetime) -> None:
    """Raise ProtectionExpired or ProtectionEnded unless the protection holds now."""
    if row.state == ProtectionState.ENDED:
        raise ProtectionEnded(f"{row.id} was ended")
    if row.state == ProtectionState.EXPIRED or row.lease_expires_at <= now:
        raise ProtectionExpired(f"the lease of {row.id} ran out at {row.lease_expires_at.isoformat()}")


def renew_protection(db: Session, row: Protection, *, lease: timedelta | None, now: datetime) -> Protection:
    """Hold it for longer, from now on. The row is locked.

    Raises: ProtectionExpired, ProtectionEnded.
    """
    require_active(row, now=now)
    row.lease = row.lease if lease is None else lease
    row.lease_expires_at = now + row.lease
    return _save(db, row, now=now)


def release_files(db: Session, row: Protection, numbers: Sequence[int], *, now: datetime) -> Protection:
    """Give files back; those that it gave back before are passed over. The row is locked.

    Raises: ProtectionExpired, ProtectionEnded, NotPartOfProtection.
    """
    require_active(row, now=now)
    if row.files is not None:
        left = sorted(set(row.files) - set(numbers))
        ranges = _covering(left)
        row.files = left
    else:
        foreign = [number for number in numbers if not covers(row.file_ranges, number)]
        if foreign:
            names = some_names([name_of(number) for number in foreign])
            raise NotPartOfProtection(f"{row.id} does not cover {names}")
        ranges = without(row.file_ranges, numbers, ranges_max=RANGES_MAX)
    row.ranges = [list(each) for each in ranges]
    row.control_due = True
    wake(db, protection_key(row.store), now=now)
    return _save(db, row, now=now)


def end_protection(
    db: Session, row: Protection, *, now: datetime, state: ProtectionState = ProtectionState.ENDED
) -> Protection:
    """Say that it is over, once; its ranges leave the control file next. The row is locked."""
    if row.state == ProtectionState.ACTIVE:
        row.state = state
        row.ended_at = now
        row.control_due = True
        wake(db, protection_key(row.store), now=now)
        _save(db, row, now=now)
    return row


def hold_again(db: Session, *, now: datetime) -> int:
    """Let each that is ACTIVE hold for its lease from now on at least; returns how many are no backup's."""
    rows = db.exec(
        select(Protection).where(Protection.state == ProtectionState.ACTIVE).with_for_update()
    ).all()
    for row in rows:
        row.lease_expires_at = max(row.lease_expires_at, now + row.lease)
        _save(db, row, now=now)
    return sum(row.backup_session_id is None for row in rows)


def expire_protections(db: Session, *, now: datetime) -> list[Protection]:
    """Say of those past their lease that they are over; returns them."""
    query = (
        select(Protection)
        .where(Protection.state == ProtectionState.ACTIVE, col(Protection.lease_expires_at) <= now)
        .order_by(col(Protection.lease_expires_at))
        .limit(EXPIRED_PER_PASS)
        .with_for_update(skip_locked=True)
    )
    rows = list(db.exec(query).all())
    for row in rows:
        end_protection(db, row, now=now, state=ProtectionState.EXPIRED)
    return rows


def control_is_in_step(db: Session, store_id: str, ids: Sequence[str], *, now: datetime) -> None:
    """Note that the control file knows what these rows say, and let who waits for the files look again."""
    db.execute(
        update(Protection)
        .where(col(Protection.id).in_(list(ids)), col(Protection.store) == store_id)
        .values(control_due=False)
        .execution_options(synchronize_session=False)
    )
    wake(db, protection_key(store_id), now=now)


def _covering(numbers: Sequence[int]) -> list[Range]:
    ranges = covering(numbers, ranges_max=RANGES_MAX)
    kept = sum(last - first + 1 for first, last in ranges if last is not None)
    assert kept >= len(set(numbers)), "less is kept than was asked for"
    return ranges


def _save(db: Session, row: Protection, *, now: datetime) -> Protection:
    row.version += 1
    return _written(db, row, now=now)


def _written(db: Session, row: Protection, *, now: datetime) -> Protection:
    """Write the row, with its event in the feed; that of a backup is told by its session."""
    db.add(row)
    if row.backup_session_id is None:
        announce(
            db,
            "protection",
            kind=PROTECTION,
            store=row.store,
            subject=f"stores/{row.store}/protections/{row.id}",
            seq=row.version,
            data={"state": str(row.state), "lease_expires_at": instant_text(row.lease_expires_at)},
            now=now,
        )
    db.flush()
    return row


__all__ = [
    "NewProtection",
    "active_protections",
    "claim_environment",
    "control_is_in_step",
    "create_protection",
    "digest_if_current",
    "digests_of",
    "end_protection",
    "expire_protections",
    "get_protection",
    "invalidate_digest",
    "note_digest",
    "protected_files",
    "protection_key",
    "prove_no_writer",
    "release_files",
    "renew_protection",
    "require_active",
]
