"""The rest of stores: their jobs wait until it ends."""

from datetime import datetime
from typing import Final

from sqlmodel import Session, col, select

from app.stores.models import SuspendRequest
from app.stores.rows import Store
from app.stores.service import get_store, save_store
from app.stores.telling import StoreChange

AHEAD: Final = "EPOCH_AHEAD"
"""What the reason of a rest begins with that ends by `lethe recover`."""
REASON_MAX: Final = 500


def suspend_store(db: Session, store_id: str, request: SuspendRequest, *, now: datetime) -> Store:
    """Let the store's jobs rest: running ones after their unit, new ones before their first."""
    store = get_store(db, store_id, lock=True)
    store.is_suspended = True
    store.suspended_until = None if request.duration is None else now + request.duration
    store.suspended_reason = request.reason
    return save_store(db, store, now=now, change=StoreChange.SUSPENDED)


def resume_store(db: Session, store_id: str, *, now: datetime) -> Store:
    """End the rest."""
    store = get_store(db, store_id, lock=True)
    if store.is_suspended:
        store.is_suspended = False
        store.suspended_until = store.suspended_reason = None
        save_store(db, store, now=now, change=StoreChange.RESUMED)
    return store


def rest_until_recovered(db: Session, store_id: str, *, is_known: bool, now: datetime) -> None:
    """Let a store rest that may have been worked on since this older copy of the metadata.

    One that rests already does so without an end, and says what comes first.

    Args:
        is_known: whether its target has seen a greater epoch; else it could not be asked.
    """
    store = get_store(db, store_id, lock=True)
    first = f"`lethe recover {store_id}`"
    if store.is_suspended and (store.suspended_reason or "").startswith((f"{AHEAD}:", f"{first} first:")):
        return  # another process, or a start on an earlier copy, has seen to it
    if store.is_suspended:
        store.suspended_reason = f"{first} first: {store.suspended_reason}"[:REASON_MAX]
    else:
        why = "has seen more than" if is_known else "could not be asked whether it has seen more than"
        store.is_suspended = True
        store.suspended_reason = f"{AHEAD}: its target {why} this older copy of the metadata; {first}"
    store.suspended_until = None
    save_store(db, store, now=now, change=StoreChange.SUSPENDED)


def end_rest_until_recovered(db: Session, store_id: str, *, now: datetime) -> bool:
    """End a rest that nobody but `rest_until_recovered` has asked for; whether there was one."""
    store = get_store(db, store_id, lock=True)
    is_one = store.is_suspended and (store.suspended_reason or "").startswith(f"{AHEAD}:")
    if is_one:
        resume_store(db, store_id, now=now)
    return is_one


def end_past_suspensions(db: Session, *, now: datetime) -> list[str]:
    """Write the end of rests whose time is over; returns their stores."""
    query = select(Store).where(col(Store.is_suspended).is_(True), col(Store.suspended_until) <= now)
    stores = db.exec(query).all()
    for store in stores:
        store.is_suspended = False
        store.suspended_until = store.suspended_reason = None
        save_store(db, store, now=now, change=StoreChange.RESUMED)
    return [store.id for store in stores]


def suspended_stores(db: Session, *, now: datetime) -> dict[str, datetime | None]:
    """The stores that rest now, and until when."""
    rows = db.exec(select(Store.id, Store.suspended_until).where(col(Store.is_suspended).is_(True))).all()
    return {store_id: until for store_id, until in rows if until is None or until > now}
