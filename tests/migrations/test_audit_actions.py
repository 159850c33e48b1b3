"""Revision 0016: audit rows of earlier versions carry the names of actions that are written now."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from app.auth.actions import Action
from app.db import Database

ROOT = Path(__file__).resolve().parents[2]
FORMER = {
    "backup_session.create": "backup-session.create",
    "backup_session.end": "backup-session.end",
    "event_cleanup.create": "event-cleanup.create",
    "extinction.accept_log": "extinction.accept-log",
    "log_switch.create": "log-switch.create",
    "signing_key.rotate": "signing-key.rotate",
    "spark_pool.drain": "spark-pool.drain",
    "erasure-cycle.create": "erasure-cycle.create",
    "purge.create": "purge.create",
}
ROW = (
    "insert into audit_events (id, at, actor, action, subject_type, subject_id, detail)"
    " values (:id, '2026-01-01', 'ann', :action, 'job', 'job_1', '{}')"
)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def former(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A metadata database as version 0014 left it, with an audit row of each spelling."""
    url = f"sqlite:///{tmp_path / 'lethe.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql_url")
    database = Database(url)
    _migrate(database, "0014", command.upgrade)
    with database.transaction() as db:
        for number, action in enumerate(FORMER):
            db.execute(sa.text(ROW), {"id": f"aud_{number:02}", "action": action})
    yield database
    database.close()


def _migrate(database: Database, revision: str, way: Callable[[Config, str], None]) -> None:
    config = Config()
    config.set_main_option("script_location", str(ROOT / "migrations"))
    with database.engine.begin() as connection:
        config.attributes["connection"] = connection
        way(config, revision)


def _actions(database: Database) -> list[str]:
    with database.reading() as db:
        return [name for (name,) in db.execute(sa.text("select action from audit_events order by id"))]


def test_audit_rows_of_before_get_the_names_of_now(former: Database) -> None:
    _migrate(former, "head", command.upgrade)
    assert _actions(former) == list(FORMER.values())
    assert set(_actions(former)) <= {str(action) for action in Action}


def test_the_way_back_leaves_names_that_the_former_version_wrote(former: Database) -> None:
    _migrate(former, "head", command.upgrade)
    _migrate(former, "0014", command.downgrade)
    assert _actions(former) == list(FORMER)
