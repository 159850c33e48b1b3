"""One database of each kind, and a target on it."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import URL, make_url

from spark.targets.connection import Connection, SessionLimits, Target, connect

Connect = Callable[..., Connection]


@pytest.fixture
def postgresql(postgresql_url: str) -> Target:
    return Target(postgresql_url, password=os.environ.get("PGPASSWORD"))


@pytest.fixture
def sqlite(tmp_path: Path) -> Target:
    path = tmp_path / "target.db"
    sqlite3.connect(path).close()
    path.touch()
    return Target(f"sqlite:///{path}")


@pytest.fixture
def mysql(mariadb_url: str) -> Target:
    url = make_url(mariadb_url)
    password = None if url.password is None else str(url.password)
    bare = URL.create(url.drivername, url.username, None, url.host, url.port, url.database, url.query)
    return Target(bare.render_as_string(), password=password)


@pytest.fixture(params=["postgresql", "sqlite", "mysql"])
def target(request: pytest.FixtureRequest) -> Target:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Target)
    return found


@pytest.fixture
def opened() -> Iterator[Connect]:
    """Open connections that are closed after the test."""
    connections: list[Connection] = []

    def open_one(
        target: Target,
        *,
        name: str = "lethe-test",
        limits: SessionLimits | None = None,
        read_only: bool = False,
    ) -> Connection:
        connections.append(connect(target, application_name=name, limits=limits, read_only=read_only))
        return connections[-1]

    yield open_one
    for connection in connections:
        connection.close()
