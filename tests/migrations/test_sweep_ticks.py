"""What recurs had a table per domain; the rows go over into one, and back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from app.db import Database
from app.stores.models import StoreKind
from app.stores.rows import Store
from tests.migrations.steps import step_down, step_up

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CRON = "store, kind, cron, time_zone"
INTERVAL = "store, interval_s"
LAST = "next_at, last_at, last_outcome, last_detail, last_job_id"
WHEN = "'2026-11-20 16:00:00.000000', '2026-11-20 12:00:00.000000', 'SUBMITTED', null, 'job_1'"


def insert_of_then(row: Store, inspector: sa.Inspector) -> sa.Insert:
    """A store as that version wrote it, without the columns that came later."""
    there = {column["name"] for column in inspector.get_columns("stores")}
    kept = [column for column in Store.__table__.columns if column.name in there]
    table = sa.table("stores", *(sa.column(column.name, column.type) for column in kept))
    return sa.insert(table).values({column.name: getattr(row, column.key) for column in kept})


@pytest.fixture
def former(empty_database: Database) -> Database:
    """A metadata database as version 0014 left it, with what recurs."""
    database = empty_database
    step_up(database, "0014")
    with database.transaction() as db:
        for name, kind in (("shop", StoreKind.SYMMETRICDS), ("node", StoreKind.SLONY)):
            row = Store(id=name, kind=kind, url="sqlite:////nowhere", created_at=NOON, updated_at=NOON)
            db.execute(insert_of_then(row, sa.inspect(db.connection())))
        purge = f"insert into purge_ticks (store, kind, cron, time_zone, {LAST})"
        db.execute(sa.text(f"{purge} values ('shop', 'OUTGOING', '0 0 0 * * *', 'Europe/Berlin', {WHEN})"))
        db.execute(sa.text(f"{purge} values ('shop', 'DATA_GAP', '0 0 */4 * * *', 'UTC', {WHEN})"))
        cleanup = f"insert into cleanup_ticks (store, interval_s, {LAST})"
        db.execute(sa.text(f"{cleanup} values ('node', 600.0, {WHEN})"))
    return database


def _rows(database: Database, table: str, schedule: str) -> list[tuple[object, ...]]:
    with database.reading() as db:
        found = db.execute(sa.text(f"select {schedule}, {LAST} from {table} order by store, 2"))
        return [tuple(row) for row in found]


def test_what_recurs_goes_over_and_back(former: Database) -> None:
    purges, cleanups = _rows(former, "purge_ticks", CRON), _rows(former, "cleanup_ticks", INTERVAL)
    step_up(former, "0015")
    found = _rows(former, "sweep_ticks", f"{CRON}, interval_s")
    assert [row[:5] for row in found] == [
        ("node", "EVENT_CLEANUP", None, None, 600.0),
        ("shop", "DATA_GAP", "0 0 */4 * * *", "UTC", None),
        ("shop", "OUTGOING", "0 0 0 * * *", "Europe/Berlin", None),
    ]
    assert [row[5:] for row in found] == [cleanups[0][2:], *[row[4:] for row in purges]]
    with former.transaction() as db:
        trimming = f"insert into sweep_ticks (store, kind, interval_s, {LAST})"
        db.execute(sa.text(f"{trimming} values ('shop', 'CHANGELOG', 60.0, {WHEN})"))
    step_down(former, "0014")
    assert _rows(former, "purge_ticks", CRON) == purges
    assert _rows(former, "cleanup_ticks", INTERVAL) == cleanups
