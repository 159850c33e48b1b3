"""Jobs of a store that rests, by the metadata's clock, as leases are: that of an instance may be wrong."""

from datetime import datetime, timedelta

from sqlmodel import Session

from app.jobs.errors import JobWaiting
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import read_store_of
from app.stores.rows import Store, is_suspended

LOOK_AGAIN = timedelta(seconds=30)


def store_key(store: str) -> str:
    """The event "this store has been resumed"."""
    return f"store:{store}"


def awake_store(context: JobContext) -> Store:
    """The store of a job, now.

    Raises: JobWaiting: it rests.
    """
    store = read_store_of(context)
    require_awake(context, store)
    return store


def require_awake(context: JobContext, store: Store) -> None:
    """Return when a job may go to a store.

    Raises: JobWaiting: it rests.
    """
    now = context.metadata_now()
    if is_suspended(store, now=now):
        raise suspended_wait(store.id, now=now, until=store.suspended_until)


def suspended_wait(store: str, *, now: datetime, until: datetime | None = None) -> JobWaiting:
    """The wait of a job whose store rests; it also looks again by itself."""
    waiting_on = [WaitingOn(kind="STORE_SUSPENDED", ref=store, until=until)]
    not_before = now + LOOK_AGAIN if until is None else min(until, now + LOOK_AGAIN)

    def resumed(db: Session) -> bool:
        # One that is just being resumed is waited for: its wake comes too early for this job.
        row = db.get(Store, store, with_for_update={"read": True}, populate_existing=True)
        return row is not None and not is_suspended(row, now=now)

    return JobWaiting(waiting_on, not_before=not_before, wake_key=store_key(store), overtaken=resumed)
