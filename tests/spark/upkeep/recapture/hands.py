"""A plain connection to a place, and values as they are written in its statements.

Statements go to the drivers without parameters: names of tables may have `%`, `:` and `?` in them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date, datetime
from typing import Any

import psycopg
import pymysql
from sqlalchemy.engine import make_url

from tests.journeys.service import until
from tests.oracles.symmetricds import Place
from tests.oracles.symmetricds_schema import Dialect


class Hand:
    """Somebody who works on the database; `commits` each statement by itself, or only when told."""

    def __init__(self, place: Place, *, commits: bool = True) -> None:
        """Connect."""
        self.dialect: Dialect = place.dialect
        self._raw: Any = _OPENED[place.dialect](place.url, commits)

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """One statement; its rows."""
        cursor = self._raw.cursor()
        cursor.execute(sql)
        return [] if cursor.description is None else [tuple(row) for row in cursor.fetchall()]

    def named(self, sql: str) -> list[dict[str, Any]]:
        """One query; its rows by the names of its columns."""
        cursor = self._raw.cursor()
        cursor.execute(sql)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def commit(self) -> None:
        """End the transaction."""
        self._raw.commit()

    def rollback(self) -> None:
        """Take the transaction back."""
        self._raw.rollback()

    def close(self) -> None:
        """Close the connection."""
        self._raw.close()


def _sqlite(url: str, commits: bool) -> Any:
    path = make_url(url).database
    assert path is not None
    raw = sqlite3.connect(path, isolation_level=None if commits else "IMMEDIATE", timeout=30)
    raw.execute("pragma synchronous = off")
    return raw


def _postgresql(url: str, commits: bool) -> Any:
    bare = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    # The tests' account has the name of the ledger's schema, which would come first.
    path = "-c search_path=public"
    return psycopg.connect(bare, autocommit=commits, prepare_threshold=None, options=path)


def _mariadb(url: str, commits: bool) -> Any:
    parts = make_url(url)
    return pymysql.connect(
        host=parts.host,
        port=parts.port or 3306,
        user=parts.username,
        password=str(parts.password or ""),
        database=parts.database,
        charset="utf8mb4",
        autocommit=commits,
        ssl_disabled=True,  # else each connection reads all certificates of this machine
    )


_OPENED = {"sqlite": _sqlite, "postgresql": _postgresql, "mariadb": _mariadb}


@contextmanager
def hand(place: Place, *, commits: bool = True) -> Iterator[Hand]:
    """A hand that is taken away at the end."""
    with closing(Hand(place, commits=commits)) as opened:
        yield opened


_WAITING = {
    "postgresql": "select 1 from pg_stat_activity where datname = current_database()"
    " and wait_event_type = 'Lock'",
    "mariadb": "select 1 from information_schema.innodb_trx t join information_schema.processlist p"
    " on p.id = t.trx_mysql_thread_id where t.trx_state = 'LOCK WAIT' and p.db = database()",
}


def until_somebody_waits(place: Place) -> None:
    """Return when the server shows somebody who waits for a lock in the database."""
    with hand(place) as watcher:
        # InnoDB shows what it showed before to whoever looks again within 100 ms.
        pause_s = 0.15 if place.dialect == "mariadb" else 0.02
        until(lambda: watcher.run(_WAITING[place.dialect]), timeout_s=20.0, pause_s=pause_s)


def literal(value: Any, dialect: Dialect) -> str:
    """A value as a statement writes it."""
    if value is None:
        return "null"
    if isinstance(value, str | date | datetime) or not isinstance(value, int | float):
        text = str(value).replace("'", "''")
        return f"'{text.replace(chr(92), chr(92) * 2) if dialect == 'mariadb' else text}'"
    return str(value)
