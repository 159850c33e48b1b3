"""What time alone will bring about: where there is nothing of it, loops rest until somebody writes."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import ColumnElement, case, exists, func, or_
from sqlmodel import Session, col, select

from app.erase.rows import CycleState, ErasureCycle, ErasureStore
from app.protection.rows import Protection, ProtectionState
from app.replication.agreements.tick import REST
from app.replication.rows import Agreement, AgreementState
from app.stores.models import StoreKind
from app.stores.rows import Store
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


def eraser_rest_s(db: Session, *, now: datetime) -> float | None:
    """How long no cycle begins by time alone; None: for ever, unless somebody writes."""
    troubled = exists().where(col(ErasureStore.trouble).is_not(None))
    is_over = col(ErasureCycle.followed).is_(False)
    repeats = exists().where(is_over, col(ErasureCycle.state).in_([CycleState.EXPIRED, CycleState.DROPPED]))
    has_failed = col(ErasureCycle.state) == CycleState.FAILED
    endless = exists().where(is_over, has_failed, col(ErasureCycle.ends_at).is_(None))
    if _is_there(db, troubled, repeats, endless):
        return 0.0
    ends = select(func.min(ErasureCycle.ends_at)).where(col(ErasureCycle.ends_at) > now)
    wakes = select(func.min(Store.suspended_until)).where(col(Store.suspended_until) > now)
    return _first_s(db.exec(select(ends.scalar_subquery(), wakes.scalar_subquery())).one(), now=now)


def _first_s(times: Iterable[datetime | None], *, now: datetime) -> float | None:
    first = min((time for time in times if time is not None), default=None)
    return None if first is None else (first - now).total_seconds()


def agreements_rest_s(db: Session) -> float | None:
    """How long no agreement has to be asked whether it has anything to send; None: none recurs."""
    is_kept = col(Agreement.state) != AgreementState.REMOVED
    least, new = db.exec(
        select(
            func.min(Agreement.interval_s),
            func.sum(case((col(Agreement.state) == AgreementState.REGISTERING, 1), else_=0)),
        ).where(is_kept)
    ).one()
    if new:
        return 0.0
    return None if least is None else min(float(least), REST.total_seconds())


def count_stores(db: Session, kind: StoreKind, *conditions: ColumnElement[bool]) -> int:
    """How many stores of a kind there are."""
    return db.exec(select(func.count()).select_from(Store).where(Store.kind == kind, *conditions)).one()
