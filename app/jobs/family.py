"""What is done to the children of a parent, a few at a time.

Rules:
- no transaction makes or changes more than PIECE children: others write to the metadata in between;
- what is left to do stands in a row beside the parent, written with the piece before: a crash between two
  pieces loses nothing and repeats nothing.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import delete
from sqlmodel import Session, col, select

from app.jobs.rows import Job, JobCheckpoint
from app.jobs.states import JobState

PIECE: Final = 5
"""A child takes some 2.5 ms to make: five are well below the 50 ms that a writer may keep others waiting."""
SUBMIT: Final = "children:submit"
RESUME: Final = "children:resume"
RETRY: Final = "children:retry"
THROTTLE: Final = "children:throttle"
ORDERS: Final = (SUBMIT, RETRY, THROTTLE, RESUME)
"""In the order in which a parent carries them out."""


def note_order(db: Session, parent_id: str, order: str, value: Mapping[str, Any], *, now: datetime) -> None:
    """Leave the rest of a verb to the parent's own task."""
    db.merge(JobCheckpoint(job_id=parent_id, name=order, value=dict(value), at=now))


def read_order(db: Session, parent_id: str, order: str) -> dict[str, Any] | None:
    """What is left of a verb; None: nothing."""
    row = db.get(JobCheckpoint, (parent_id, order))
    return None if row is None else dict(row.value)


def forget_order(db: Session, parent_id: str, order: str) -> None:
    """Nothing is left of it, or it holds no more."""
    place = (col(JobCheckpoint.job_id) == parent_id, col(JobCheckpoint.name) == order)
    db.execute(delete(JobCheckpoint).where(*place))


def has_orders(db: Session, parent_id: str) -> bool:
    """Whether something is left to do to the children."""
    place = (col(JobCheckpoint.job_id) == parent_id, col(JobCheckpoint.name).in_(ORDERS))
    return db.exec(select(JobCheckpoint.name).where(*place).limit(1)).first() is not None


def next_children(
    db: Session,
    parent_id: str,
    *,
    but: frozenset[JobState] = frozenset(),
    only: frozenset[JobState] = frozenset(),
    after: str = "",
) -> Sequence[str]:
    """The next few children, oldest first, and one more where more are left."""
    query = select(Job.id).where(Job.parent_id == parent_id, col(Job.id) > after).order_by(col(Job.id))
    if but:
        query = query.where(col(Job.state).not_in(sorted(but)))
    if only:
        query = query.where(col(Job.state).in_(sorted(only)))
    return db.exec(query.limit(PIECE + 1)).all()
