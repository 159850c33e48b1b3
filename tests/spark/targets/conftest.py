"""One database of each kind, and a target on it."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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


@pytest.fixture(params=["postgresql", "sqlite"])
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
