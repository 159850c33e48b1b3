"""Sums and notes, written in the transaction of what they count.

Rules:
- they are the last that a transaction writes, in one order: two that count the same never wait crosswise;
- a transaction that is rolled back has counted nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session

from app.db import before_commit, notes
from app.figures.rows import Figure
from app.figures.series import Series, has_values, note_value, write_values

PENDING: Final = "lethe_figures"
LABEL_MAX_CHARS: Final = 200
SEPARATOR: Final = "\t"


class Name(StrEnum):
    """What is counted or noted."""

    JOBS_ENDED = "jobs_ended"
    LAST_SUCCESS = "last_success"
    PURGE_ROWS_REMOVED = "purge_rows_removed"
    ABORTS = "aborts"
    ABORT_SECONDS = "abort_seconds"
    SLONY_LAG_EVENTS = "slony_lag_events"
    SLONY_LAG_SECONDS = "slony_lag_seconds"
    SLONY_HEALTH = "slony_health"
    SLONY_HEALTH_AT = "slony_health_at"
    SLONY_FINDING = "slony_finding"
    SLONY_TABLE_ROWS = "slony_table_rows"
    SLONY_EVENT_AGE = "slony_event_age"
    SLONY_TRANSACTION_AGE = "slony_transaction_age"
    DS389_HEALTH = "ds389_health"
    DS389_HEALTH_AT = "ds389_health_at"
    DS389_FINDING = "ds389_finding"
    DS389_LAG = "ds389_lag"


OF_HEALTH: Final = frozenset(
    {
        Name.SLONY_HEALTH,
        Name.SLONY_HEALTH_AT,
        Name.SLONY_FINDING,
        Name.SLONY_TABLE_ROWS,
        Name.SLONY_EVENT_AGE,
        Name.SLONY_TRANSACTION_AGE,
    }
)
"""What a look at the health of a Slony-I node notes."""
OF_DS389: Final = frozenset({Name.DS389_HEALTH, Name.DS389_HEALTH_AT, Name.DS389_FINDING, Name.DS389_LAG})
"""What a look at a replica of 389 Directory Server notes."""
NOTED: Final = (
    frozenset({Name.LAST_SUCCESS, Name.SLONY_LAG_EVENTS, Name.SLONY_LAG_SECONDS}) | OF_HEALTH | OF_DS389
)
"""Not added up: the last one stands."""
SERIES: Final = {
    Name.PURGE_ROWS_REMOVED: Series.ROWS_REMOVED,
    Name.ABORT_SECONDS: Series.ABORT_SECONDS,
}
"""What is told as a series of its store too."""
_Key = tuple[str, str, str]


@dataclass(slots=True)
class _Change:
    value: float
    at: datetime


def count(
    db: Session, name: Name, *labels: str, store: str | None, value: float = 1.0, now: datetime
) -> None:
    """Add to a sum, or note the last value, when the transaction of a session commits."""
    _will_write(db)
    key = (name.value, store or "", SEPARATOR.join(labels)[:LABEL_MAX_CHARS])
    notes(db, PENDING).append((key, _Change(value, now)))
    series = SERIES.get(name)
    if series is not None and store is not None and value >= 0:
        note_value(db, series, value, store=store, now=now)


def note(db: Session, series: Series, value: float, *, store: str, now: datetime) -> None:
    """Add a value to a series of a store, when the transaction of a session commits."""
    _will_write(db)
    note_value(db, series, value, store=store, now=now)


def _will_write(db: Session) -> None:
    if not notes(db, PENDING) and not has_values(db):
        before_commit(db, _write)


def labels_of(figure: Mapping[str, Any] | Figure) -> list[str]:
    """The labels of a row, in the order in which they were given."""
    label = figure.label if isinstance(figure, Figure) else str(figure["label"])
    return label.split(SEPARATOR)


def _write(db: Session) -> None:
    pending: dict[_Key, _Change] = {}
    for key, change in notes(db, PENDING):
        known = pending.get(key)
        added_before = 0.0 if known is None or key[0] in NOTED else known.value
        pending[key] = _Change(change.value + added_before, change.at)
    added = {key: change for key, change in pending.items() if key[0] not in NOTED}
    noted = {key: change for key, change in pending.items() if key[0] in NOTED}
    for changes, adds in ((added, True), (noted, False)):
        if changes:
            db.execute(_upsert(db, changes, adds=adds))
    write_values(db)


def _upsert(db: Session, changes: Mapping[_Key, _Change], *, adds: bool) -> Any:
    dialect = postgresql if db.get_bind().dialect.name == "postgresql" else sqlite
    rows = [
        {"name": name, "store": store, "label": label, "value": change.value, "at": change.at}
        for (name, store, label), change in sorted(changes.items())
    ]
    statement = dialect.insert(Figure).values(rows)
    value = Figure.value + statement.excluded.value if adds else statement.excluded.value
    return statement.on_conflict_do_update(
        index_elements=["name", "store", "label"], set_={"value": value, "at": statement.excluded.at}
    )
