"""Numbers for what is committed: the one order of the feed.

A number that an event took as it was written would not do: on PostgreSQL a transaction that began earlier may
commit later, and a reader who has gone past its number would never see it. So events are committed without
one, and get theirs here, from whoever wants to read.

Rules:
- numbers are given under the lock of one row, to events that are committed: what gets a number later has a
  greater one, so that nothing can appear behind a reader;
- the events of one subject are numbered in the order of their own sequence, whatever the clocks say;
- a number is given once, also when every event is forgotten, or the metadata was restored (`leap`).
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import delete, func, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col, select

from app.db import Database
from app.feed.rows import FeedEvent, FeedNumber

NAME: Final = "feed"
PIECE: Final = 1_000
FORGET_MAX: Final = 10_000
MS_IN_S: Final = 1_000


def give_numbers(database: Database) -> int:
    """Number all that is committed now; returns the last number that was given, by whomever."""
    while is_any_waiting(database):
        with database.transaction(is_news=False) as db:
            last, was_last = _give_piece(db)
        if was_last:
            return last
    # Read behind the look: what somebody else has numbered meanwhile is no news that anybody would hear of.
    return last_number(database)


def is_any_waiting(database: Database) -> bool:
    """Whether an event is committed that has no number yet."""
    with database.reading() as db:
        query = select(FeedEvent.id).where(col(FeedEvent.number).is_(None)).limit(1)
        return db.exec(query).first() is not None


def last_number(database: Database) -> int:
    """The last number that was given; 0: none."""
    with database.reading() as db:
        row = db.get(FeedNumber, NAME)
        return 0 if row is None else row.last


def _give_piece(db: Session) -> tuple[int, bool]:
    """Number a piece; returns the last number, and whether nothing is left."""
    last = _lock(db)
    waiting = db.exec(
        select(FeedEvent.id, FeedEvent.subject, FeedEvent.seq)
        .where(col(FeedEvent.number).is_(None))
        .order_by(col(FeedEvent.id))
        .limit(PIECE)
    ).all()
    if waiting:
        rows = [(event_id, subject, seq) for event_id, subject, seq in waiting]
        if len(rows) == PIECE:
            rows = _without_later(db, rows) or rows
        numbered = [
            {"id": event_id, "number": last + place} for place, event_id in enumerate(in_order(rows), start=1)
        ]
        db.execute(update(FeedEvent), numbered)
        last += len(numbered)
        db.execute(update(FeedNumber).where(col(FeedNumber.name) == NAME).values(last=last))
    return last, len(waiting) < PIECE


def _lock(db: Session) -> int:
    """The last number, under the lock of its row to the end of the transaction."""
    insert: Any = sqlite.insert if db.get_bind().dialect.name == "sqlite" else postgresql.insert
    first = insert(FeedNumber).values(name=NAME, last=0, forgotten=0)
    same = first.on_conflict_do_update(index_elements=["name"], set_={"last": FeedNumber.last})
    return int(db.execute(same.returning(col(FeedNumber.last))).scalar_one())


def leap(db: Session, *, now: datetime) -> None:
    """Go on above all numbers that were given since the copy was made that this metadata was restored from.

    They would be given again: who resumes from one of them would never be told what is new below it. So he
    begins anew. Milliseconds are more than all events: each restore comes out above the one before it.
    """
    last = max(_lock(db) + 1, int(now.timestamp() * MS_IN_S))
    values = {"last": last, "forgotten": last}
    db.execute(update(FeedNumber).where(col(FeedNumber.name) == NAME).values(**values))


def _without_later(db: Session, rows: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """A full piece without the events that have an earlier one of their subject beyond it."""
    beyond = db.exec(
        select(FeedEvent.subject, func.min(FeedEvent.seq))
        .where(
            col(FeedEvent.number).is_(None),
            col(FeedEvent.id) > rows[-1][0],
            col(FeedEvent.subject).in_({subject for _, subject, _ in rows}),
        )
        .group_by(col(FeedEvent.subject))
    ).all()
    first = dict(beyond)
    return [row for row in rows if row[1] not in first or row[2] < first[row[1]]]


def in_order(rows: Sequence[tuple[str, str, int]]) -> list[str]:
    """Ids in the order of their numbers.

    Args:
        rows: (id, subject, seq), by id: about by time. A subject keeps its places; its seq fills them.
    """
    places: dict[str, list[int]] = defaultdict(list)
    for place, (_, subject, _) in enumerate(rows):
        places[subject].append(place)
    ordered = [""] * len(rows)
    for of_subject in places.values():
        by_seq = sorted(of_subject, key=lambda place: rows[place][2])
        for place, source in zip(of_subject, by_seq, strict=True):
            ordered[place] = rows[source][0]
    return ordered


def forget(db: Session, *, before: datetime) -> int:
    """Remove a piece of what is older, the first numbers first; returns how many events went."""
    last = _lock(db)
    old = db.exec(
        select(FeedEvent.id, FeedEvent.number)
        .where(col(FeedEvent.at) < before)
        .order_by(col(FeedEvent.at))
        .limit(FORGET_MAX)
    ).all()
    if not old:
        return 0
    upto = max((number for _, number in old if number is not None), default=0)
    gone = len(old)
    for first in range(0, gone, PIECE):
        ids = [event_id for event_id, _ in old[first : first + PIECE]]
        db.execute(delete(FeedEvent).where(col(FeedEvent.id).in_(ids)))
    # What was never numbered was told to nobody: who resumes from before it has missed it.
    skipped = last + 1 if any(number is None for _, number in old) else upto
    if skipped > last:
        db.execute(update(FeedNumber).where(col(FeedNumber.name) == NAME).values(last=skipped))
    forgotten = func.greatest if db.get_bind().dialect.name == "postgresql" else func.max
    db.execute(
        update(FeedNumber)
        .where(col(FeedNumber.name) == NAME)
        .values(forgotten=forgotten(FeedNumber.forgotten, max(upto, skipped)))
    )
    return gone
