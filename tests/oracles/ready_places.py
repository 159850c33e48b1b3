"""Databases with the empty tables of SymmetricDS, lent to one test after the other.

To make and drop some twenty tables takes a server longer than most purges of a test. Who alters tables, or
adds triggers, needs a database of its own: only missing and added tables are noticed here.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pymysql
import pytest

from spark.targets.ledger_schema import TABLES
from tests.oracles.symmetricds_database import Layout, Place, create, empty, session
from tests.oracles.symmetricds_schema import Dialect, Version, tables

LOCK_TIMEOUT = {"postgresql": "set lock_timeout = '5s'", "mariadb": "set lock_wait_timeout = 5"}
TABLES_SQL = {
    "postgresql": (
        "select schemaname || '.' || tablename from pg_tables"
        " where schemaname not in ('pg_catalog', 'information_schema')"
    ),
    "mariadb": "show tables",
}
LAYOUT = {"postgresql": "public.", "mariadb": ""}
LEDGER = {"postgresql": "lethe.", "mariadb": "lethe_"}


class Server(Protocol):
    """Where databases are made."""

    def execute(self, statement: str) -> Any:
        """Run one statement outside any database."""

    def url(self, database: str) -> str:
        """Address of a database."""


@dataclass
class ReadyPlaces:
    """The databases of one server that no test has at the moment."""

    server: Server
    dialect: Dialect
    free: list[Place] = field(default_factory=list)

    @contextmanager
    def lent(self, version: Version, *, loose: bool = False) -> Iterator[Place]:
        """A database with the tables of a layout, for `create` and `build` as for one without any."""
        place = self._taken(version, loose=loose)
        yield place
        if _is_clean(place):
            self.free.append(place)
        else:
            self._drop(place)

    def _taken(self, version: Version, *, loose: bool) -> Place:
        layout: Layout = "loose" if loose else "strict"
        for place in self.free:
            if (place.version, place.layout) == (version, layout):
                self.free.remove(place)
                return place
        name = f"lethe_ready_{uuid.uuid4().hex[:12]}"
        self.server.execute(f"create database {name}")
        made = Place(self.server.url(name), version)
        create(made, loose=loose)
        return replace(made, layout=layout)

    def drop(self) -> None:
        """Drop the databases."""
        for place in self.free:
            self._drop(place)

    def _drop(self, place: Place) -> None:
        name = place.url.rpartition("/")[2]
        force = " with (force)" if self.dialect == "postgresql" else ""
        self.server.execute(f"drop database {name}{force}")


def _is_clean(place: Place) -> bool:
    """Empty all tables, those of Lethe too; False where this cannot be done or others are there."""
    layout, ledger = LAYOUT[place.dialect], LEDGER[place.dialect]
    made = {f"{layout}{place.prefix}{table}" for table in tables(place.version)}
    with suppress(psycopg.Error, pymysql.Error):
        with session(place) as target:
            target.run(LOCK_TIMEOUT[place.dialect])
            there = {name for (name,) in target.run(TABLES_SQL[place.dialect])}
            own = there & {f"{ledger}{table}" for table in TABLES}
            if there - own != made:
                return False
            for table in own:
                target.run(f"delete from {table}")
        empty(place)
        return True
    return False


@contextmanager
def ready_place(
    request: pytest.FixtureRequest, name: str, directory: Path, *, loose: bool = False
) -> Iterator[Place]:
    """One of PLACES, of symmetricds_engines: a new file, or a database of a server that has its tables."""
    dialect, _, version = name.partition("-")
    wanted: Version = "2.x" if version == "2.x" else "3.x"
    if dialect == "sqlite":
        yield Place(f"sqlite:///{directory}/{version}.db", wanted)
        return
    places: ReadyPlaces = request.getfixturevalue(f"ready_{dialect}")
    with places.lent(wanted, loose=loose) as place:
        yield place
