"""A table that an upgrade makes anew, and the rows that hang on it."""

from __future__ import annotations

import sqlalchemy as sa

from app.db import Database
from migrations.upgrade import upgrade
from tests.migrations.steps import step_up

STORE = (
    "insert into stores (id, kind, url, table_prefix, time_zone, labels, runs_on, parameters, limits,"
    " version, is_suspended, target_parameters, created_at, updated_at) values ('shop', 'SYMMETRICDS',"
    " 'sqlite:////x', 'sym_', 'UTC', '{}', '[]', '{}', '{}', 1, false, '{}', '2026-01-01', '2026-01-01')"
)
TICK = (
    "insert into purge_ticks (store, kind, cron, time_zone, next_at)"
    " values ('shop', 'OUTGOING', '0 3 * * *', 'UTC', '2026-01-02')"
)


def test_rows_that_hang_on_a_store_outlive_the_table_of_stores(empty_database: Database) -> None:
    """SQLite dropped the former table of stores, and took along every row that goes with a store."""
    step_up(empty_database, "0002")
    with empty_database.transaction() as db:
        db.execute(sa.text(STORE))
        db.execute(sa.text(TICK))
    upgrade(empty_database)
    with empty_database.reading() as db:
        found = db.execute(sa.text("select store, kind, cron from sweep_ticks")).all()
    assert [tuple(row) for row in found] == [("shop", "OUTGOING", "0 3 * * *")]
    if empty_database.is_sqlite:  # nothing of it is left to the pool
        with empty_database.engine.connect() as connection:
            assert connection.exec_driver_sql("pragma foreign_keys").scalar_one() == 1
