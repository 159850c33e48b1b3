"""An upgrade that dies at any of its statements: SIGKILL of the process, or a connection that is cut."""

from __future__ import annotations

import gzip
import os
import re
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from app.db import Database
from migrations.upgrade import ADVISORY_KEY, current_revision, head_revision, upgrade
from tests.migrations.former import FORMERS, Former
from tests.spark.events.catalogs import conninfo_of, run_dump

ALL, SOME = range(1, 2_000), range(3, 2_000, 17)
AN_ADDRESS = re.compile(r" object at 0x[0-9a-f]+")
AN_INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
BEGAN = str(datetime.now(UTC))[:19]
State = dict[str, Any]


def _fill(database: Database, former: Former) -> None:
    """The metadata that a service of a former version has left."""
    engine = "sqlite" if database.is_sqlite else "postgresql"
    text = gzip.decompress((former.fixture / f"{engine}.metadata.sql.gz").read_bytes()).decode()
    if database.is_sqlite:
        with closing(sqlite3.connect(str(database.url.database))) as raw:
            raw.executescript(text)
    else:
        with psycopg.connect(conninfo_of(_url(database))) as raw:
            run_dump(raw, text)


def _url(database: Database) -> str:
    return database.url.render_as_string(hide_password=False)


def _state(database: Database) -> State:
    """The schema and all rows, in an order of their own."""
    fresh = Database(_url(database))
    try:
        with fresh.engine.connect() as connection:
            look = sa.inspect(connection)
            return {name: _table(connection, look, name) for name in look.get_table_names()}
    finally:
        fresh.close()


def _table(connection: sa.Connection, look: sa.Inspector, name: str) -> dict[str, Any]:
    rows = connection.exec_driver_sql(f'select * from "{name}"').all()
    parts: list[Any] = [look.get_columns(name), look.get_indexes(name), look.get_foreign_keys(name)]
    parts += [look.get_unique_constraints(name), [look.get_pk_constraint(name)]]
    return {
        "schema": [sorted(AN_ADDRESS.sub("", repr(each)) for each in part) for part in parts],
        "rows": sorted(repr([_shown(value) for value in row]) for row in rows),
    }


def _shown(value: object) -> str:
    """A value; an upgrade writes the time of now into some."""
    text = str(value)
    return "NOW" if AN_INSTANT.match(text) and text >= BEGAN else text


def _dies_at(database: Database, number: int, die: Callable[[], None]) -> bool:
    """Let a process of its own upgrade and die at a statement; False: it had fewer and has upgraded."""
    child = os.fork()
    if child == 0:
        try:
            _upgrade_until(Database(_url(database)), number, die)
        except sa.exc.OperationalError:
            os._exit(3)
        except BaseException:  # noqa: BLE001 -- the parent tells it
            os._exit(4)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) in (0, 3), "it ended by another fault"
    return os.WEXITSTATUS(status) == 3


def _upgrade_until(database: Database, number: int, die: Callable[[], None]) -> None:
    left = [number]

    def count() -> None:
        left[0] -= 1
        if left[0] == 0:
            die()

    sa.event.listen(database.engine, "before_cursor_execute", lambda *_: count())
    sa.event.listen(database.engine, "commit", lambda *_: count())
    upgrade(database)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _cutter(database: Database) -> Callable[[], None]:
    """Cut the connection that migrates, from outside."""

    def cut() -> None:
        with psycopg.connect(conninfo_of(_url(database)), autocommit=True) as raw:
            raw.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )

    return cut


def _gone(database: Database) -> None:
    """Wait until the server has noticed that who migrated is dead."""
    if database.is_sqlite:
        return
    with psycopg.connect(conninfo_of(_url(database))) as raw:
        raw.execute("set lock_timeout = '20s'")
        raw.execute("select pg_advisory_xact_lock(%s)", (ADVISORY_KEY,))


def _empty(database: Database) -> None:
    database.close()
    if not database.is_sqlite:
        with psycopg.connect(conninfo_of(_url(database))) as raw:
            raw.execute("drop schema public cascade")
            raw.execute("create schema public")
        return
    path = Path(str(database.url.database))
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()


def _uncut(database: Database, former: Former) -> State:
    """What an upgrade makes that nobody disturbs."""
    _fill(database, former)
    upgrade(database)
    state = _state(database)
    _empty(database)
    return state


def _attack(database: Database, former: Former, die: Callable[[], None], steps: range) -> None:
    wanted = _uncut(database, former)
    _fill(database, former)
    before = _state(database)
    for number in steps:
        if not _dies_at(database, number, die):
            break
        _gone(database)
        assert _state(database) == before, f"a death at statement {number} has left something"
    else:
        upgrade(database)
    assert current_revision(database) == head_revision()
    assert _state(database) == wanted


@pytest.mark.parametrize("former", [pytest.param(former, id=former.revision) for former in FORMERS])
def test_an_upgrade_killed_at_a_statement_leaves_the_former_state_and_the_next_one_ends(
    empty_database: Database, former: Former
) -> None:
    _attack(empty_database, former, _die, SOME)


@pytest.mark.long
@pytest.mark.parametrize("former", [pytest.param(former, id=former.revision) for former in FORMERS])
def test_an_upgrade_killed_at_each_of_its_statements_leaves_the_former_state(
    empty_database: Database, former: Former
) -> None:
    _attack(empty_database, former, _die, ALL)


@pytest.mark.postgresql
def test_an_upgrade_that_the_server_cuts_off_leaves_the_former_state(postgresql_url: str) -> None:
    database = Database(postgresql_url)
    _attack(database, FORMERS[0], _cutter(database), SOME)
    database.close()
