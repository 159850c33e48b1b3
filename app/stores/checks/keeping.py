"""The last check of a store, kept: by `:check`, and by the checks that come by themselves."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session

from app.figures.series import BACKLOG_OF_EVENTS, Series
from app.figures.sums import note
from app.kinds.parameter import ParameterValue, as_timedelta
from app.parameters.service import effective, known_parameter
from app.settings import Settings
from app.stores.checks.models import FindingSeverity, StoreCheck
from app.stores.checks.rows import StoreHealth
from app.stores.rows import Store
from app.stores.telling import StoreChange, tell_change

PERIOD: Final = "store.check.period"
NOT_READY: Final = "NOT_READY"
FINDINGS_MAX: Final = 10
DETAIL_MAX_CHARS: Final = 300
LOOK_AGAIN: Final = timedelta(minutes=5)
"""So late is a new period noticed at most."""
LATE: Final = timedelta(minutes=1)
"""A check that is so much later than twice its period is stale."""


def check_period(
    db: Session, store: Store, values: Mapping[str, ParameterValue], settings: Settings
) -> timedelta:
    """How often a store is looked at by itself; zero: never.

    Args:
        values: the global ones (app.parameters.service.global_values).
    """
    found = effective(db, known_parameter(PERIOD), store.parameters, values=values)
    if found.source == "DEFAULT":
        return timedelta(seconds=settings.store_check_s)
    return as_timedelta(found.value)


def next_look(now: datetime, period: timedelta) -> datetime:
    """When to look whether a check is due."""
    return now + (min(period, LOOK_AGAIN) if period else LOOK_AGAIN)


def keep_check(
    db: Session, store: Store, found: StoreCheck, *, period: timedelta, now: datetime
) -> StoreHealth:
    """Keep what a check has found, and tell what is new of it; the backlog goes into the store's series."""
    row = health_row(db, store.id, now=now)
    before = _told(row)
    errors = [each for each in found.findings if each.severity is FindingSeverity.ERROR]
    warnings = [each for each in found.findings if each.severity is FindingSeverity.WARNING]
    trouble = None if found.ok else (errors[0].code if errors else NOT_READY)
    row.trouble_since = None if trouble is None else (row.trouble_since or now)
    row.trouble, row.checked_at, row.is_reachable = trouble, now, found.reachable
    row.warnings = len(warnings)
    kept = [*errors, *warnings][:FINDINGS_MAX]
    row.findings = [each.to_keep(max_chars=DETAIL_MAX_CHARS) for each in kept]
    row.stale_at = now + 2 * period + LATE if period else None
    row.due_at = next_look(now, period)
    db.add(row)
    if _told(row) != before:
        tell_change(db, store.id, StoreChange.HEALTH, now=now, **_told(row))
    db.flush()
    rows = [each.rows_estimate for each in found.sizes if each.rows_estimate is not None]
    if rows and store.kind not in BACKLOG_OF_EVENTS:
        note(db, Series.BACKLOG, float(sum(rows)), store=store.id, now=now)
    return row


def _told(row: StoreHealth) -> dict[str, Any]:
    """What of a health is told in the feed."""
    return {
        "is_ready": None if row.checked_at is None else row.trouble is None,
        "is_reachable": row.is_reachable,
        "findings": [each["code"] for each in row.findings],
    }


def health_row(db: Session, store_id: str, *, now: datetime) -> StoreHealth:
    """The row of a store, locked; made where there is none."""
    insert: Any = sqlite.insert if db.get_bind().dialect.name == "sqlite" else postgresql.insert
    first = insert(StoreHealth).values(store=store_id, warnings=0, findings=[], due_at=now)
    db.execute(first.on_conflict_do_nothing(index_elements=["store"]))
    return db.get_one(StoreHealth, store_id, with_for_update=True)
