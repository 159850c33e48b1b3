"""Recorded catalogs of a Slony-I cluster, each test's in a database of its own.

A catalog is read from `tests/data/slony` into a template database once per session and copied from there
(some 40 ms). Import the fixtures into a conftest.py beside the tests:

    from tests.spark.events.catalogs import catalogs, slony_templates  # noqa: F401

    def test_something(catalogs: Catalogs) -> None:
        node = catalogs.load("fxa", 1)
        with node.connect() as conn:
            catalog = read_catalog(conn, node.cluster)
"""

from __future__ import annotations

import gzip
import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.engine import make_url

from spark.formats.slony import schema_of
from spark.targets.connection import Connection, SessionLimits, Target, connect
from tests.conftest import SharedServer

DATA = Path(__file__).resolve().parents[2] / "data" / "slony"
RECORDED_CLUSTER = "lab"
NO_PROCESS = 2**31 - 1
"""A process id that no server gives to a backend."""
State = Literal["fxa", "fxc"]


@dataclass(frozen=True)
class LoadedCatalog:
    """A node's database.

    Args:
        url: `postgresql+psycopg://user@host:port/database`, without a password.
    """

    url: str
    cluster: str

    @property
    def schema(self) -> str:
        """Not quoted."""
        return schema_of(self.cluster)

    @property
    def target(self) -> Target:
        """As `app.stores.targets` makes it of a store."""
        return Target(self.url, password=os.environ.get("PGPASSWORD"), schema=self.schema)

    def connect(self, *, limits: SessionLimits | None = None, read_only: bool = False) -> Connection:
        """A connection as the product opens it; close it."""
        return connect(self.target, application_name="lethe-test", limits=limits, read_only=read_only)

    def raw(self, *, autocommit: bool = True, **options: Any) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection past the product, its search_path set to the cluster's schema; close it."""
        path = '"' + self.schema.replace('"', '""') + '"'
        opened = psycopg.connect(conninfo_of(self.url), autocommit=True, **options)
        opened.execute("select set_config('search_path', %s || ', public', false)", (path,))
        opened.autocommit = autocommit
        return opened

    def execute(self, *statements: str) -> None:
        """Run statements in one transaction; tables need no schema before them."""
        with self.raw(autocommit=False) as raw:
            for statement in statements:
                raw.execute(statement)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of one statement; tables need no schema before them."""
        with self.raw() as raw:
            return raw.execute(statement).fetchall()

    def as_role(self, role: str) -> LoadedCatalog:
        """The same database by another role, see `Catalogs.role`."""
        return LoadedCatalog(make_url(self.url).set(username=role).render_as_string(), self.cluster)

    def counts(self) -> dict[str, int]:
        """How many rows every table has that the recorded files have."""
        tables = list(recorded_columns())
        [found] = self.query(f"select {', '.join(f'(select count(*) from {table})' for table in tables)}")
        return dict(zip(tables, found, strict=True))

    def rows(self) -> dict[str, Any]:
        """All rows in the form of the recorded `rows` and `after`: see `recorded_rows`."""
        with self.raw() as raw:
            return read_rows(raw)


def conninfo_of(url: str) -> str:
    """The address as libpq wants it."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def recorded(name: str) -> dict[str, Any]:
    """A recorded JSON file, named as `oracle/fxa.n1.logswitch`."""
    with gzip.open(DATA / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found


@cache
def recorded_columns() -> dict[str, list[str]]:
    """The tables of the recorded files, with their columns."""
    found: dict[str, list[str]] = recorded("fxa/n1.rows")["columns"]
    return found


def recorded_rows(state: State, node: int) -> dict[str, Any]:
    """What `LoadedCatalog.rows` of that catalog gives while nothing has changed it."""
    found: dict[str, Any] = recorded(f"{state}/n{node}.rows")["rows"]
    return found


def oracle_cases() -> list[str]:
    """The names of the recorded cases: `fxa.n1.cleanup_075900`."""
    return sorted(path.name.removesuffix(".json.gz") for path in (DATA / "oracle").glob("*.json.gz"))


def read_rows(raw: psycopg.Connection[tuple[Any, ...]]) -> dict[str, Any]:
    """The rows of every table that the recorded files have, their columns, their order."""
    found: dict[str, Any] = {}
    for table, names in recorded_columns().items():
        chosen = [f"{name}::text" if name.endswith("_snapshot") else name for name in names]
        rows = raw.execute(f"select {', '.join(chosen)} from {table}").fetchall()
        found[table] = sorted(([_plain(value) for value in row] for row in rows), key=_order)
    for sequence in ("sl_log_status", "sl_local_node_id"):
        [(found[sequence],)] = raw.execute(f"select last_value from {sequence}").fetchall()
    keys = raw.execute("select reg_key from sl_registry order by 1").fetchall()
    found["sl_registry"] = [list(row) for row in keys]
    return found


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(sep=" ", timespec="microseconds")
    return value.decode() if isinstance(value, bytes) else value


def _order(row: list[Any]) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in row]


class Catalogs:
    """Makes databases for one test, and drops them after it."""

    def __init__(self, templates: Templates) -> None:
        self._templates = templates
        self._made: list[str] = []
        self._roles: list[str] = []

    def load(self, state: State, node: int, *, cluster: str = RECORDED_CLUSTER) -> LoadedCatalog:
        """A copy of a recorded catalog.

        Args:
            cluster: another name for it: its schema is renamed.
        """
        database = self._templates.copy(state, node)
        self._made.append(database)
        loaded = LoadedCatalog(self._templates.server.url(database), cluster)
        if cluster != RECORDED_CLUSTER:
            with psycopg.connect(conninfo_of(loaded.url)) as raw:
                rename = sql.SQL("alter schema {} rename to {}")
                raw.execute(
                    rename.format(sql.Identifier(schema_of(RECORDED_CLUSTER)), sql.Identifier(loaded.schema))
                )
        return loaded

    def empty(self, *, cluster: str = RECORDED_CLUSTER, node: int = 1) -> LoadedCatalog:
        """The tables without any row; the node's own id is set, the log status is 0."""
        loaded = self.load("fxa", 1, cluster=cluster)
        with loaded.raw() as raw:
            tables = raw.execute(
                "select quote_ident(schemaname) || '.' || quote_ident(tablename) from pg_catalog.pg_tables"
                " where schemaname = %s",
                (loaded.schema,),
            ).fetchall()
            raw.execute(f"truncate {', '.join(name for (name,) in tables)}")
            raw.execute("select setval('sl_log_status', 0), setval('sl_local_node_id', %s)", (node,))
        return loaded

    def restore(self, dump: str, *, cluster: str) -> LoadedCatalog:
        """A node as pg_dump wrote it down."""
        database = f"lethe_{uuid.uuid4().hex[:16]}"
        self._templates.server.execute(f"create database {database} template template0 encoding 'UTF8'")
        self._made.append(database)
        loaded = LoadedCatalog(self._templates.server.url(database), cluster)
        with psycopg.connect(conninfo_of(loaded.url)) as raw:
            run_dump(raw, dump)
        return loaded

    def role(self) -> str:
        """A new role that may log in and nothing else."""
        name = f"lethe_{uuid.uuid4().hex[:16]}"
        password = os.environ.get("PGPASSWORD", "")
        self._templates.server.execute(f"create role {name} login password '{password}'")
        self._roles.append(name)
        return name

    def drop(self) -> None:
        """Drop what was made, the databases first: they hold what was granted to the roles."""
        for database in self._made:
            self._templates.server.execute(f"drop database if exists {database} with (force)")
        for role in self._roles:
            self._templates.server.execute(f"drop role {role}")


class Templates:
    """The template databases of a session, each made when it is first asked for."""

    def __init__(self, server: SharedServer) -> None:
        self.server = server
        self._databases: dict[tuple[State, int], str] = {}

    def copy(self, state: State, node: int) -> str:
        """The name of a new database with that catalog."""
        template = self._databases.get((state, node)) or self._make(state, node)
        name = f"lethe_{uuid.uuid4().hex[:16]}"
        self.server.create_database(name, template=template)
        return name

    def drop(self) -> None:
        """Drop the templates."""
        for database in self._databases.values():
            self.server.execute(f"drop database if exists {database} with (force)")

    def _make(self, state: State, node: int) -> str:
        name = f"lethe_slony_{uuid.uuid4().hex[:16]}"
        self.server.execute(f"create database {name} template template0 encoding 'UTF8' locale 'C'")
        self._databases[state, node] = name
        with psycopg.connect(conninfo_of(self.server.url(name))) as raw:
            load_dump(raw, (DATA / state / f"n{node}.tables.sql.gz").read_bytes())
            # The recorded backends have ended; their process ids may be those of this server's by chance.
            raw.execute(f"update {schema_of(RECORDED_CLUSTER)}.sl_nodelock set nl_backendpid = {NO_PROCESS}")
        return name


def load_dump(raw: psycopg.Connection[tuple[Any, ...]], dump: bytes) -> None:
    """Feed what pg_dump wrote, and gzip packed."""
    run_dump(raw, gzip.decompress(dump).decode())


def run_dump(raw: psycopg.Connection[tuple[Any, ...]], text: str) -> None:
    r"""Feed what pg_dump wrote: statements, `COPY ... FROM stdin` with their rows, psql's `\restrict`."""
    statement: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith(("\\", "--")):
            continue
        if line.startswith("COPY ") and line.endswith(" FROM stdin;"):
            raw.execute("\n".join(statement))
            statement.clear()
            with raw.cursor() as cursor, cursor.copy(line) as copy:
                for row in iter(lambda: next(lines), "\\."):
                    copy.write(f"{row}\n")
            continue
        statement.append(line)
    raw.execute("\n".join(statement))


@pytest.fixture(scope="session")
def slony_templates(postgresql_server: SharedServer) -> Iterator[Templates]:
    """The recorded catalogs of the session's server."""
    templates = Templates(postgresql_server)
    yield templates
    templates.drop()


@pytest.fixture
def catalogs(slony_templates: Templates) -> Iterator[Catalogs]:
    """Copies of recorded catalogs for one test."""
    made = Catalogs(slony_templates)
    yield made
    made.drop()
