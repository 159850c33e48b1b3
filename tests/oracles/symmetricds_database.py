"""Writes and reads whole SymmetricDS databases: the rows of an oracle on a real target.

Rows are plain Python: `{table without prefix: [{column: value}, ...]}`, times as naive `datetime`. A snapshot
has every column of every table, in the order of the primary key, with the values as the target returns them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import psycopg
import pymysql
from sqlalchemy.engine import make_url

from tests.oracles.symmetricds_schema import Dialect, Table, Version, quoted, statements, tables
from tests.oracles.symmetricds_text import Collation, exact, general_ci

Row = dict[str, Any]
Rows = dict[str, list[Row]]
TimeEncoding = Literal["timestamp", "text", "text_ms", "text_s", "epoch_ms"]

TABLES_SQL = {
    "sqlite": "select name from sqlite_master where type = 'table'",
    "postgresql": "select tablename from pg_tables where schemaname = :schema",
    # Not information_schema.columns: after some thousands of these MariaDB 10.11.19 died of a signal 11.
    "mariadb": "show tables",
}


@dataclass(frozen=True)
class Place:
    """Where a SymmetricDS database lies and how it is laid out.

    `encoding` is how SQLite keeps times ('timestamp' is the only one of the servers): text with 6, 3 or no
    digits of a second, or milliseconds since 1970 of the naive time. `schema` is PostgreSQL's.
    """

    url: str
    version: Version = "3.x"
    schema: str | None = None
    prefix: str = "sym_"
    encoding: TimeEncoding = "text"

    @property
    def dialect(self) -> Dialect:
        """Which of the three engines."""
        if self.url.startswith("sqlite"):
            return "sqlite"
        return "mariadb" if self.url.startswith("mysql") else "postgresql"

    @property
    def collation(self) -> Collation:
        """When two texts are the same here."""
        return general_ci if self.dialect == "mariadb" else exact

    def name(self, table: str) -> str:
        """Quoted name of a table given without prefix."""
        name = quoted(f"{self.prefix}{table}", self.dialect)
        return f"{quoted(self.schema, self.dialect)}.{name}" if self.schema else name

    def encode(self, value: Any) -> Any:
        """A value as this place keeps it; only times change."""
        if not isinstance(value, datetime) or self.dialect != "sqlite":
            return value
        if self.encoding == "epoch_ms":
            return round(value.replace(tzinfo=UTC).timestamp() * 1000)
        digits = {"text": 26, "text_ms": 23, "text_s": 19, "timestamp": 26}[self.encoding]
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")[:digits]


class Session:
    """An autocommitting connection that speaks `:name` parameters on every engine."""

    def __init__(self, place: Place) -> None:
        """Connect; SQLite creates its file."""
        opened = {"sqlite": _open_sqlite, "postgresql": _open_postgresql, "mariadb": _open_mariadb}
        self._connection: Any = opened[place.dialect](place.url)
        self.dialect = place.dialect
        self.sqlite = place.dialect == "sqlite"

    def run(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        cursor = self._execute(sql, parameters)
        return [] if cursor.description is None else list(cursor.fetchall())

    def read(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a query and return the names of its columns and its rows."""
        cursor = self._execute(sql, None)
        return [column[0] for column in cursor.description], list(cursor.fetchall())

    def count(self, sql: str, parameters: Mapping[str, Any] | None = None) -> int:
        """Run one statement and return how many rows it touched."""
        return int(self._execute(sql, parameters).rowcount)

    def write(self, sql: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run one statement for many rows in one transaction."""
        if not rows:
            return
        self._execute("begin", None)
        self._connection.cursor().executemany(self._form(sql, rows[0]), rows)
        self._execute("commit", None)

    def _execute(self, sql: str, parameters: Mapping[str, Any] | None) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(self._form(sql, parameters), parameters or ())
        return cursor

    def _form(self, sql: str, parameters: Mapping[str, Any] | None) -> str:
        if self.sqlite:
            return sql
        for name in sorted(parameters or {}, key=len, reverse=True):
            sql = sql.replace(f":{name}", f"%({name})s")
        return sql

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _open_sqlite(url: str) -> Any:
    path = make_url(url).database
    assert path is not None
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("pragma synchronous = off")
    return connection


def _open_postgresql(url: str) -> Any:
    bare = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    # A generic plan of the chunked deletes is a trap (facts, section 8).
    return psycopg.connect(bare, autocommit=True, prepare_threshold=None)


def _open_mariadb(url: str) -> Any:
    parts = make_url(url)
    return pymysql.connect(
        host=parts.host,
        port=parts.port or 3306,
        user=parts.username,
        password=str(parts.password or ""),
        database=parts.database,
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,  # else each connection reads all certificates of this machine
    )


@contextmanager
def session(place: Place) -> Iterator[Session]:
    """A session that is closed at the end."""
    with closing(Session(place)) as opened:
        yield opened


def create(place: Place, *, loose: bool = False) -> None:
    """Create the empty tables and indexes of the layout; `loose` lets every column but a key be NULL."""
    with session(place) as target:
        made = statements(
            place.version, dialect=place.dialect, prefix=place.prefix, schema=place.schema, loose=loose
        )
        for statement in made:
            target.run(statement)


def load(place: Place, rows: Rows) -> None:
    """Insert rows into existing tables; columns that a row leaves out get their defaults."""
    with session(place) as target:
        for table, content in rows.items():
            for names, group in _by_columns(content).items():
                columns, values = ", ".join(names), ", ".join(f":{name}" for name in names)
                encoded = [{name: place.encode(row[name]) for name in names} for row in group]
                target.write(f"insert into {place.name(table)} ({columns}) values ({values})", encoded)
        if place.dialect == "postgresql":
            _advance_identities(target, place)


def _by_columns(content: list[Row]) -> dict[tuple[str, ...], list[Row]]:
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in content:
        groups.setdefault(tuple(row), []).append(row)
    return groups


def _advance_identities(target: Session, place: Place) -> None:
    for table in tables(place.version).values():
        column = table.automatic
        if column is not None:
            name = place.name(table.name)
            following = f"(select coalesce(max({column}), 0) + 1 from {name})"
            target.run(f"select setval(pg_get_serial_sequence('{name}', '{column}'), {following}, false)")


def build(place: Place, rows: Rows) -> None:
    """Create the tables and insert the rows."""
    create(place)
    load(place, rows)


def empty(place: Place) -> None:
    """Delete every row of every table."""
    with session(place) as target:
        for table in tables(place.version):
            target.run(f"delete from {place.name(table)}")


def snapshot(place: Place) -> Rows:
    """Every row of every table of the layout that exists, by its name without prefix."""
    with session(place) as target:
        present = _present(target, place)
        return {
            table.name: _read(target, place, table)
            for table in tables(place.version).values()
            if f"{place.prefix}{table.name}" in present
        }


def _read(target: Session, place: Place, table: Table) -> list[Row]:
    # The columns which the table really has: the reference files differ a little from the built layouts.
    names, rows = target.read(f"select * from {place.name(table.name)}")
    found = [dict(zip(names, row, strict=True)) for row in rows]
    return sorted(found, key=lambda row: tuple(row[name] for name in table.primary_key))


def _present(target: Session, place: Place) -> set[str]:
    parameters = {"schema": place.schema or "public"} if place.dialect == "postgresql" else {}
    return {row[0] for row in target.run(TABLES_SQL[target.dialect], parameters)}
