"""What time alone will bring about: where there is nothing of it, loops rest until somebody writes."""

from datetime import datetime

from sqlalchemy import ColumnElement, and_, exists, func, or_
from sqlmodel import Session, col, select

from app.erase.rows import ErasureCycle, ErasureStore
from app.protection.rows import Protection, ProtectionState
from app.replication.rows import Agreement, AgreementState
from app.sweeps.rows import SweepTick


def _is_there(db: Session, *conditions: ColumnElement[bool]) -> bool:
    return bool(db.exec(select(or_(*conditions))).one())


def is_anything_held(db: Session) -> bool:
    """Whether a lease of a protection or backup runs, or a range waits to be given back."""
    is_held = or_(col(Protection.state) == ProtectionState.ACTIVE, col(Protection.control_due).is_(True))
    return _is_there(db, exists().where(is_held))


def first_due(db: Session) -> datetime | None:
    """When the first of the sweeps that recur is due."""
    return db.exec(select(func.min(SweepTick.next_at))).one()


def minds_eraser_time(db: Session) -> bool:
    """Whether a cycle follows another one by its time, is tried again, or repeats."""
    switched = or_(col(ErasureStore.seen_enabled).is_(True), col(ErasureStore.trouble).is_not(None))
    repeats = and_(col(ErasureCycle.followed).is_(False), col(ErasureCycle.state).in_(["EXPIRED", "DROPPED"]))
    return _is_there(db, exists().where(switched), exists().where(repeats))


def minds_agreements(db: Session) -> bool:
    """Whether an agreement has an interval, or a target that is still to be told of it."""
    recurs = or_(col(Agreement.interval_s).is_not(None), col(Agreement.state) == AgreementState.REGISTERING)
    return _is_there(db, exists().where(col(Agreement.state) != AgreementState.REMOVED, recurs))
