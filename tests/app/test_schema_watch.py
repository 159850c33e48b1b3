"""A schema of another revision below a running instance is seen, told, and seen to be gone."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from app.db import Database
from app.readiness import Readiness
from app.schema_watch import Schema, SchemaWatch
from migrations.upgrade import head_revision


def _say_revision(database: Database, revision: str) -> None:
    with database.transaction() as db:
        db.execute(sa.text("update alembic_version set version_num = :r"), {"r": revision})


@pytest.mark.parametrize(
    ("revision", "found", "status"), [("9999", Schema.NEWER, "ready"), ("0003", Schema.OLDER, "schema")]
)
def test_schema_of_another_revision_is_told_by_readyz(
    database: Database, revision: str, found: Schema, status: str
) -> None:
    watch = SchemaWatch(database)
    readiness = Readiness(runner_alive=lambda: True, schema=lambda: watch.found)
    watch.look()
    assert readiness.look(database) == ("ready", [])
    _say_revision(database, revision)
    try:
        watch.look()
        assert watch.found is found
        assert readiness.look(database) == (status, [f"SCHEMA_{found}"])
    finally:
        _say_revision(database, head_revision())
    watch.look()
    assert readiness.look(database) == ("ready", [])


def test_look_at_the_schema_is_one_statement(database: Database) -> None:
    seen: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda *args: seen.append(args[2]))
    SchemaWatch(database).look()
    assert len([each for each in seen if each != "BEGIN"]) == 1
