"""Metadata databases at head: SQLite files from one template, one PostgreSQL database emptied per test."""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from app.db import Database
from app.settings import Settings
from app.tables import metadata
from migrations.upgrade import upgrade
from tests.app.fake_clock import FakeClock
from tests.conftest import SharedServer
from tests.http.service_process import metadata_at_head

_EMPTYING = [
    *(f"delete from {each.name}" for each in reversed(metadata.sorted_tables) if each.name != "counters"),
    "delete from counters where name <> 'fencing_token'",
    "update counters set value = 0",
]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, runner_poll_interval_s=0.02, lease_renew_interval_s=0.05)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "lethe.db"
    path.write_bytes(metadata_at_head())
    return path


@pytest.fixture
def sqlite_database(sqlite_template: Path, tmp_path: Path, clock: FakeClock) -> Iterator[Database]:
    path = tmp_path / "lethe.db"
    shutil.copyfile(sqlite_template, path)
    database = Database(f"sqlite:///{path}", clock=clock)
    yield database
    database.close()


@pytest.fixture(scope="session")
def migrated_postgresql(postgresql_server: SharedServer) -> Iterator[str]:
    name = f"lethe_app_{uuid.uuid4().hex[:12]}"
    postgresql_server.create_database(name)
    url = postgresql_server.url(name)
    database = Database(url)
    upgrade(database)
    database.close()
    yield url
    postgresql_server.execute(f"drop database if exists {name} with (force)")


def _emptied(conninfo: str) -> None:
    """By one message: a few rows each, for which truncate would take longer."""
    with psycopg.connect(conninfo, autocommit=True) as connection:  # tests end those that stand open
        connection.execute("; ".join(_EMPTYING).encode())


@pytest.fixture
def postgresql_database(migrated_postgresql: str, clock: FakeClock) -> Iterator[Database]:
    """The lease clock is the server's; the fake one serves the rest."""
    database = Database(migrated_postgresql, clock=clock, pool_size=20)
    yield database
    database.close()
    _emptied(make_url(migrated_postgresql).set(drivername="postgresql").render_as_string(False))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def database(request: pytest.FixtureRequest) -> Database:
    """The same test on both."""
    database: Database = request.getfixturevalue(f"{request.param}_database")
    return database
