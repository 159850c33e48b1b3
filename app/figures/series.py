"""Small series of a store: what it removed, how far it is behind; written in the transaction of the fact.

Rules:
- a value is added to a piece of each length at once: nothing is rolled up later, so neither a crash nor a
  second instance loses or doubles a part of it;
- all pieces of a transaction are one statement, in one order, after the sums (app.figures.sums): two that
  count the same never wait crosswise.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import delete, func
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col, select

from app.db import notes
from app.figures.rows import SeriesPoint

NOTED: Final = "lethe_series"


class Series(StrEnum):
    """What is kept of a store."""

    ROWS_REMOVED = "rows_removed"
    BYTES_ERASED = "bytes_erased"
    BACKLOG = "backlog"
    LAG_SECONDS = "lag_seconds"
    ABORT_SECONDS = "abort_seconds"


ADDED: Final = frozenset({Series.ROWS_REMOVED, Series.BYTES_ERASED})
"""Of these the sum tells; of the others the mean, the greatest and the last."""
UNITS: Final[Mapping[Series, str]] = {
    Series.ROWS_REMOVED: "rows",
    Series.BYTES_ERASED: "bytes",
    Series.BACKLOG: "rows",
    Series.LAG_SECONDS: "seconds",
    Series.ABORT_SECONDS: "seconds",
}


BACKLOG_OF_EVENTS: Final = frozenset({"SLONY"})
"""Kinds of stores whose backlog is events that nobody has confirmed; that of the others is rows."""


def unit_of(series: Series, kind: str) -> str:
    """What a series of a kind of store counts."""
    return "events" if series is Series.BACKLOG and kind in BACKLOG_OF_EVENTS else UNITS[series]


@dataclass(frozen=True, slots=True)
class Length:
    """Pieces of one length, and how long they are kept."""

    step_s: int
    shown: timedelta
    kept: timedelta


DAY: Final = Length(600, timedelta(hours=24), timedelta(hours=26))
MONTH: Final = Length(21_600, timedelta(days=30), timedelta(days=31))
LENGTHS: Final = (DAY, MONTH)
_Key = tuple[str, str, int, datetime]


@dataclass(slots=True)
class _Piece:
    total: float
    number: int
    most: float
    last: float


def note_value(db: Session, name: Series, value: float, *, store: str, now: datetime) -> None:
    """Put a value into the pieces of a transaction that sums.py will write."""
    notes(db, NOTED).append((store, name.value, value, now))


def has_values(db: Session) -> bool:
    """Whether a transaction has such values to write."""
    return bool(notes(db, NOTED))


def piece_of(at: datetime, step_s: int) -> datetime:
    """When the piece begins that an instant lies in."""
    return datetime.fromtimestamp(int(at.timestamp()) // step_s * step_s, UTC)


def write_values(db: Session) -> None:
    """Write what was noted; the last statement of its transaction."""
    pending = _pieces(notes(db, NOTED))
    if not pending:
        return
    is_postgresql = db.get_bind().dialect.name == "postgresql"
    insert: Any = postgresql.insert if is_postgresql else sqlite.insert
    rows = [
        {"store": store, "name": name, "step_s": step_s, "at": at}
        | {"total": piece.total, "number": piece.number, "most": piece.most, "last": piece.last}
        for (store, name, step_s, at), piece in sorted(pending.items())
    ]
    statement = insert(SeriesPoint).values(rows)
    new = statement.excluded
    greater = func.greatest if is_postgresql else func.max
    db.execute(
        statement.on_conflict_do_update(
            index_elements=["store", "name", "step_s", "at"],
            set_={
                "total": SeriesPoint.total + new.total,
                "number": SeriesPoint.number + new.number,
                "most": greater(SeriesPoint.most, new.most),
                "last": new.last,
            },
        )
    )


def _pieces(values: Iterable[tuple[str, str, float, datetime]]) -> dict[_Key, _Piece]:
    pending: dict[_Key, _Piece] = {}
    for store, name, value, at in values:
        for length in LENGTHS:
            key = (store, name, length.step_s, piece_of(at, length.step_s))
            known = pending.get(key)
            if known is None:
                pending[key] = _Piece(value, 1, value, value)
            else:
                known.total, known.number = known.total + value, known.number + 1
                known.most, known.last = max(known.most, value), value
    return pending


def read_points(db: Session, store: str, length: Length, *, now: datetime) -> list[SeriesPoint]:
    """The pieces of a store that are shown, the oldest first."""
    first = piece_of(now - length.shown, length.step_s)
    query = select(SeriesPoint).where(
        SeriesPoint.store == store, SeriesPoint.step_s == length.step_s, col(SeriesPoint.at) > first
    )
    return list(db.exec(query.order_by(col(SeriesPoint.name), col(SeriesPoint.at))).all())


def forget_points(db: Session, *, now: datetime) -> int:
    """Remove what is older than is kept; returns how many pieces went."""
    gone = 0
    for length in LENGTHS:
        old = (col(SeriesPoint.step_s) == length.step_s, col(SeriesPoint.at) < now - length.kept)
        gone += len(db.execute(delete(SeriesPoint).where(*old).returning(col(SeriesPoint.name))).all())
    return gone
