"""What journeys on MariaDB need beside `ground`: sessions of the test's own, and who is at work."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from random import Random
from typing import Any

import pymysql

from tests.journeys.crashes import build_large
from tests.journeys.ground import PURGED
from tests.mariadb_server import PrivateMariadb
from tests.oracles.symmetricds import Place, Version, session, snapshot

Connection = Any  # of PyMySQL
# InnoDB shows what it showed before to whoever looks again within 100 ms.
LOOK_AGAIN_S = 0.12
LEDGER_SQL = "select job_id, unit_id, token, rows_affected, committed_at from lethe_unit_ledger"


def new_place(server: PrivateMariadb, name: str, *, seed: int, rows: int, version: Version = "3.x") -> Place:
    """A large database of its own."""
    server.execute(f"create database {name}")
    place = Place(server.url(name), version)
    build_large(place, seed, rows=rows)
    return place


def database_of(place: Place) -> str:
    """The name of a place's database."""
    return place.url.rpartition("/")[2]


@contextmanager
def connected(server: PrivateMariadb, place: Place) -> Iterator[Connection]:
    """A session of the test's own."""
    with closing(server.connect(database_of(place))) as connection:
        yield connection


def ask(connection: Connection, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows of one statement."""
    with connection.cursor() as cursor:
        cursor.execute(sql, values or None)
        return list(cursor.fetchall())


def at_work(connection: Connection) -> list[tuple[Any, ...]]:
    """Sessions of the database, ourselves apart, that run a statement or have written in a transaction."""
    return ask(
        connection,
        "select p.id, p.command, p.info, t.trx_state from information_schema.processlist p"
        " left join information_schema.innodb_trx t on t.trx_mysql_thread_id = p.id"
        " where p.db = database() and p.id <> connection_id()"
        " and (p.command not in ('Sleep', 'Connect') or t.trx_rows_modified > 0)",
    )


def is_blocked(connection: Connection) -> bool:
    """Whether somebody of this database waits for a lock."""
    time.sleep(LOOK_AGAIN_S)
    return bool(
        ask(
            connection,
            "select 1 from information_schema.innodb_trx t join information_schema.processlist p"
            " on p.id = t.trx_mysql_thread_id where t.trx_state = 'LOCK WAIT' and p.db = database()",
        )
    )


def is_caught(connection: Connection) -> bool:
    """Whether a session has written and sleeps; another unit of its runner may wait for its locks."""
    return any(row[1] == "Sleep" for row in at_work(connection))


def is_idle(connection: Connection) -> bool:
    """Whether nobody is at work, for longer than InnoDB answers from a look before (0.1 s)."""
    for _ in range(3):
        if at_work(connection):
            return False
        time.sleep(LOOK_AGAIN_S)
    return not at_work(connection)


def kill_one(server: PrivateMariadb, place: Place, rng: Random) -> None:
    """End one session of the database, as an operator or a network does; none where there is none."""
    try:
        with connected(server, place) as connection:
            sessions = ask(
                connection,
                "select id from information_schema.processlist"
                " where db = database() and id <> connection_id()",
            )
            if sessions:
                ask(connection, f"kill {int(rng.choice(sessions)[0])}")
    except pymysql.Error:
        return


def fingerprint(place: Place) -> str:
    """A hash over every row of the purged tables, and over the ledger."""
    parts = [repr(snapshot(place)[table]) for table in PURGED]
    with session(place) as target:
        if target.run("show tables like 'lethe_unit_ledger'"):
            parts.append(repr(sorted(target.run(LEDGER_SQL))))
    return hashlib.sha256("".join(parts).encode()).hexdigest()
