"""Places for replicas: a file of its own each, or tables of their own in one database of the module."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.replication.replica.replica import create_file
from spark.targets.connection import Target
from tests.conftest import SharedServer
from tests.spark.replication.replica_tables import DIALECTS, postgresql_target, sqlite_target

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def module_database(postgresql_server: SharedServer) -> Iterator[str]:
    """The address of a database that the tests of a module share: to make one costs more than most tests."""
    name = f"lethe_{uuid.uuid4().hex[:16]}"
    postgresql_server.create_database(name)
    yield postgresql_server.url(name)
    postgresql_server.execute(f"drop database if exists {name} with (force)")


@pytest.fixture
def postgresql_place(module_database: str) -> Target:
    """Names on PostgreSQL that no other test uses."""
    prefix = f"replica{next(_NUMBERS)}_"
    return Target(module_database, password=os.environ.get("PGPASSWORD"), table_prefix=prefix)


@pytest.fixture
def sqlite_place(tmp_path: Path) -> Target:
    """A new file."""
    target = Target(f"sqlite:///{tmp_path / 'replica.db'}", table_prefix="replica_")
    create_file(target)
    return target


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def place(request: pytest.FixtureRequest) -> Target:
    """An empty place for a replica, on either database."""
    found = request.getfixturevalue(f"{request.param}_place")
    assert isinstance(found, Target)
    return found


@pytest.fixture(params=DIALECTS)
def bare_place(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """A new database for the bare tables of a replica."""
    if request.param == "postgresql":
        return postgresql_target(request.getfixturevalue("postgresql_url"))
    return sqlite_target(tmp_path)
