"""Events are written here, in the transaction of their fact and without a number: nobody waits for it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col

from app.db import NEWS, Turn, before_commit, notes
from app.feed.rows import FeedEvent, FeedNumber
from app.kit.ids import new_id

BACKUP: Final = "BACKUP"
REPLICATION_SESSION: Final = "REPLICATION_SESSION"
STORE: Final = "STORE"
PROTECTION: Final = "PROTECTION"
SCHEDULE: Final = "SCHEDULE"
WINDOW: Final = "WINDOW"

CHANGES: Final = "changes"
"""The row of what has a sequence for all: `last` is that of the last event."""
PENDING: Final = "lethe_feed_changes"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def announce(
    db: Session,
    what: str,
    *,
    kind: str,
    store: str | None,
    subject: str,
    seq: int,
    data: Mapping[str, Any],
    now: datetime,
    token_id: str | None = None,
) -> None:
    """Write an event of the feed; it is told once the transaction is committed, and never if it is not.

    Args:
        what: `job.state`, ...; `backup`, `session`, `protection`.
        kind: of the job; BACKUP, REPLICATION_SESSION, PROTECTION.
        seq: grows with each event of the subject, under the lock of its row.
        token_id: of whoever asked for it, where it is of no store.
    """
    db.info[NEWS] = True
    db.add(_event(what, kind, store, subject, seq, data, now, token_id))


def announce_change(
    db: Session,
    what: str,
    *,
    kind: str,
    store: str | None,
    subject: str,
    data: Mapping[str, Any],
    now: datetime,
    token_id: str | None = None,
) -> None:
    """Write an event of a subject that counts no changes of its own, and may come again after its end.

    Its sequence is given as the transaction ends, under the lock of one row: what commits later has a greater
    one, whatever any clock says.

    Args:
        what: `store`, `schedule`, `window`.
        kind: STORE, SCHEDULE, WINDOW.
    """
    db.info[NEWS] = True
    pending = notes(db, PENDING)
    if not pending:
        before_commit(db, _give_sequence, turn=Turn.FEED)
    pending.append(_event(what, kind, store, subject, 0, data, now, token_id))


def _event(
    what: str,
    kind: str,
    store: str | None,
    subject: str,
    seq: int,
    data: Mapping[str, Any],
    now: datetime,
    token_id: str | None,
) -> FeedEvent:
    return FeedEvent(
        id=new_id("fev"),
        at=now,
        type=what,
        kind=kind,
        store=store,
        subject=subject,
        seq=seq,
        token_id=token_id if store is None else None,
        data=dict(data),
    )


def _give_sequence(db: Session) -> None:
    rows: list[FeedEvent] = notes(db, PENDING)
    last = _take(db, len(rows), at_least=max(_micros(row.at) for row in rows))
    for seq, row in enumerate(rows, start=last - len(rows) + 1):
        row.seq = seq
        db.add(row)


def _micros(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def _take(db: Session, number: int, *, at_least: int) -> int:
    """Take so many of the sequence; returns the last of them.

    Args:
        at_least: what the version before would have given, which may run beside this one.
    """
    is_sqlite = db.get_bind().dialect.name == "sqlite"
    insert: Any = sqlite.insert if is_sqlite else postgresql.insert
    greatest = sa.func.max if is_sqlite else sa.func.greatest
    first = insert(FeedNumber).values(name=CHANGES, last=at_least + number, forgotten=0)
    last = greatest(FeedNumber.last, at_least) + number
    taken = first.on_conflict_do_update(index_elements=["name"], set_={"last": last})
    return int(db.execute(taken.returning(col(FeedNumber.last))).scalar_one())
