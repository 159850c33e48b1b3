"""The recurring trimming: purges CHANGELOG that Lethe submits by itself."""

from datetime import datetime
from functools import partial
from typing import Final

from sqlmodel import Session

from app.replication.purges.recurring import recurring_purge
from app.replication.trimming.service import unseen
from app.stores.rows import Store
from app.sweeps.models import IntervalTickRead
from app.sweeps.purging import CHANGELOG
from app.sweeps.tick import shown_by_interval, submit_due

INTERVAL: Final = "nsslapd-changelogtrim-interval"
TRIMMINGS: Final = recurring_purge(CHANGELOG, parameter=INTERVAL, unseen=unseen)
trim_tick_once = partial(submit_due, TRIMMINGS)


class TrimTickRead(IntervalTickRead):
    """The recurring trimming of a store."""


def read_tick(db: Session, store: Store, *, now: datetime) -> TrimTickRead | None:
    """The recurring trimming of a store; None: it is off."""
    fields = shown_by_interval(db, TRIMMINGS, store, now=now)
    return None if fields is None else TrimTickRead.model_validate(fields)
