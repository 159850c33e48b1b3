"""Jobs of a store that rests."""

from datetime import datetime, timedelta

from sqlmodel import Session

from app.jobs.errors import JobWaiting
from app.jobs.models import WaitingOn
from app.stores.rows import Store, is_suspended

LOOK_AGAIN = timedelta(seconds=30)


def store_key(store: str) -> str:
    """The event "this store has been resumed"."""
    return f"store:{store}"


def suspended_wait(store: str, *, now: datetime, until: datetime | None = None) -> JobWaiting:
    """The wait of a job whose store rests; it also looks again by itself."""
    waiting_on = [WaitingOn(kind="STORE_SUSPENDED", ref=store, until=until)]
    not_before = now + LOOK_AGAIN if until is None else min(until, now + LOOK_AGAIN)

    def resumed(db: Session) -> bool:
        row = db.get(Store, store)
        return row is not None and not is_suspended(row, now=now)

    return JobWaiting(waiting_on, not_before=not_before, wake_key=store_key(store), overtaken=resumed)
