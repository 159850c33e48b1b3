"""Revision 0016: audit rows of earlier versions carry the names of actions that are written now."""

import pytest
import sqlalchemy as sa

from app.auth.actions import Action
from app.db import Database
from tests.migrations.steps import step_down, step_up

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


@pytest.fixture
def former(empty_database: Database) -> Database:
    """A metadata database as version 0014 left it, with an audit row of each spelling."""
    database = empty_database
    step_up(database, "0014")
    with database.transaction() as db:
        for number, action in enumerate(FORMER):
            db.execute(sa.text(ROW), {"id": f"aud_{number:02}", "action": action})
    return database


def _actions(database: Database) -> list[str]:
    with database.reading() as db:
        return [name for (name,) in db.execute(sa.text("select action from audit_events order by id"))]


def test_audit_rows_of_before_get_the_names_of_now(former: Database) -> None:
    step_up(former, "head")
    assert _actions(former) == list(FORMER.values())
    assert set(_actions(former)) <= {str(action) for action in Action}


def test_the_way_back_leaves_names_that_the_former_version_wrote(former: Database) -> None:
    step_up(former, "head")
    step_down(former, "0014")
    assert _actions(former) == list(FORMER)
