"""Rows of backups that have ended go with time; what still stands in a control file keeps its row."""

from __future__ import annotations

from app.backups.rows import BackupFile, BackupSession
from app.db import Database
from app.protection.control import Environment, sync
from app.protection.reconciliation import keep_protections
from app.protection.rows import Protection
from app.retention import forget_rows
from app.settings import Settings
from app.stores.rows import Store
from tests.app.backups.test_sessions import activate, end
from tests.app.fake_clock import FakeClock
from tests.app.protection.conftest import ON_SQLITE


def rows(database: Database) -> dict[str, int]:
    with database.reading() as db:
        return {
            table.__name__: len(db.connection().execute(table.__table__.select()).all())
            for table in (BackupSession, BackupFile, Protection)
        }


@ON_SQLITE
def test_ended_backups_go_after_their_retention_and_active_ones_stay(
    database: Database, store: Store, environment: Environment, settings: Settings, clock: FakeClock
) -> None:
    ended = activate(database, store, environment, [1, 2])
    sync(database, environment, clock=clock)
    end(database, store, environment, ended)
    clock.advance(91 * 86_400)
    activate(database, store, environment, [3])
    assert forget_rows(database)["backups"] == 1
    assert rows(database) == {"BackupSession": 1, "BackupFile": 1, "Protection": 2}, "its range still stands"
    keep_protections(database, settings, clock=clock)
    assert forget_rows(database)["backups"] == 1
    assert rows(database) == {"BackupSession": 1, "BackupFile": 1, "Protection": 1}
