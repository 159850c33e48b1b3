"""How far receivers are behind, noted whenever somebody has asked a node: a scrape asks none."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import delete
from sqlmodel import Session, col

from app.figures.rows import Figure
from app.figures.series import Series
from app.figures.sums import Name, count, note
from app.jobs.running.context import JobContext
from spark.events.confirmations import read_matrix
from spark.events.records import Catalog, Confirmed
from spark.targets.connection import Connection

NEVER: Final = -1.0
"""Shown as +Inf."""


def look_at_lags(context: JobContext, conn: Connection, catalog: Catalog) -> None:
    """Note the lags that a node knows, for a job that has it open."""
    with conn.transaction(read_only=True):
        rows = read_matrix(conn, catalog)
    store = context.job.store or ""
    context.write(lambda db: note_lags(db, store, rows, now=context.database.now(db)))


def note_lags(db: Session, store: str, rows: Sequence[Confirmed], *, now: datetime) -> None:
    """Note the lag of each pair of origin and receiver; pairs that are gone are forgotten.

    The series of the store have one value for each look: of the pair that is furthest behind.
    """
    names = [Name.SLONY_LAG_EVENTS, Name.SLONY_LAG_SECONDS]
    db.execute(delete(Figure).where(col(Figure.store) == store, col(Figure.name).in_(names)))
    for row in rows:
        pair = (str(row.origin), str(row.receiver))
        lag_s = NEVER if row.lag is None else row.lag.total_seconds()
        count(db, Name.SLONY_LAG_EVENTS, *pair, store=store, value=float(row.lag_events), now=now)
        count(db, Name.SLONY_LAG_SECONDS, *pair, store=store, value=lag_s, now=now)
    if rows:
        events = max(row.lag_events for row in rows)
        note(db, Series.BACKLOG, float(events), store=store, now=now)
    known = [row.lag.total_seconds() for row in rows if row.lag is not None]
    if known:
        note(db, Series.LAG_SECONDS, max(known), store=store, now=now)
