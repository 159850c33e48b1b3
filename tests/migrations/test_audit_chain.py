"""Audit rows that are older than the chain are chained by the migration, and the version before can go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from app.audit.witness import Witness
from app.auth.rows import AuditChain
from app.db import Database
from migrations.upgrade import upgrade
from tests.app.audit.ledger import Tables, event, faults, write
from tests.migrations.steps import step_down, step_up

FORMER = (
    "id",
    "at",
    "token_id",
    "actor",
    "action",
    "subject_type",
    "subject_id",
    "store",
    "request_id",
    "detail",
)
ROWS = 2_345


@pytest.fixture
def former(empty_database: Database) -> Database:
    """A metadata database as version 0019 left it, with audit rows."""
    database = empty_database
    step_up(database, "0019")
    _write_formerly(database, ROWS)
    return database


def _write_formerly(database: Database, count: int) -> None:
    """As the version before writes them: it knows no chain."""
    rows: list[dict[str, Any]] = [event(number).model_dump(warnings=False) for number in range(count)]
    names = ", ".join(FORMER)
    values = ", ".join(f":{name}" for name in FORMER)
    statement = sa.text(f"insert into audit_events ({names}) values ({values})")
    types = {"at": Tables.column_type("at"), "detail": Tables.column_type("detail")}
    statement = statement.bindparams(*(sa.bindparam(name, type_=kind) for name, kind in types.items()))
    with database.engine.begin() as connection:
        connection.execute(statement, [{name: row[name] for name in FORMER} for row in rows])


def test_rows_of_before_get_their_places(former: Database, tmp_path: Path) -> None:
    upgrade(former)
    assert faults(former) == []
    with former.reading() as db:
        chain = db.get_one(AuditChain, 1)
        assert (chain.seq, chain.adopted_seq) == (ROWS, ROWS)
    write(former, 5)
    _write_formerly(former, 3)  # the version before, beside this one
    assert {fault.code for fault in faults(former)} == {"ROW_UNCHAINED"}
    Witness(former, tmp_path).begin()
    assert faults(former, tmp_path) == []


def test_way_down_leaves_the_rows(former: Database) -> None:
    upgrade(former)
    step_down(former, "0019")
    step_up(former, "head")
    assert faults(former) == []
    assert len(Tables.read(former).events) == ROWS
