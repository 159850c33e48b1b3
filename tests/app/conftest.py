"""Metadata databases at head: SQLite files from one template, one PostgreSQL database emptied per test."""

import shutil
import uuid
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
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


CASES_MANY, EACH_SO_MANYTH = 4, 3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test with many cases each is on SQLite, and a third on PostgreSQL; all in the long run."""
    cases: dict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if params.get("database") == "postgresql" and item.path.is_relative_to(Path(__file__).parent):
            cases[item.path, getattr(item, "originalname", item.name)].append(item)
    for found in cases.values():
        if len(found) >= CASES_MANY:
            for number, item in enumerate(found):
                if number % EACH_SO_MANYTH:
                    item.add_marker(pytest.mark.long)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@cache
def _usual_settings() -> Settings:
    """Read and checked once: that takes longer than many a test."""
    return Settings(runner_poll_interval_s=0.02, lease_renew_interval_s=0.05)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return _usual_settings().model_copy(update={"data_dir": tmp_path}, deep=True)


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


class Emptier:
    """Empties the tables by one message: a few rows each, for which truncate would take longer.

    Over one connection: a new one has every table and its indexes looked up again.
    """

    def __init__(self, url: str) -> None:
        self._conninfo = make_url(url).set(drivername="postgresql").render_as_string(False)
        self._connection: psycopg.Connection | None = None

    def __call__(self) -> None:
        try:
            self._empty()
        except psycopg.OperationalError:  # a test has ended all that stand open
            self.close()
            self._empty()

    def _empty(self) -> None:
        if self._connection is None:
            self._connection = psycopg.connect(self._conninfo, autocommit=True)
        self._connection.execute("; ".join(_EMPTYING).encode())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@pytest.fixture(scope="session")
def emptier(migrated_postgresql: str) -> Iterator[Emptier]:
    found = Emptier(migrated_postgresql)
    yield found
    found.close()


@pytest.fixture
def postgresql_database(migrated_postgresql: str, emptier: Emptier, clock: FakeClock) -> Iterator[Database]:
    """The lease clock is the server's; the fake one serves the rest."""
    database = Database(migrated_postgresql, clock=clock, pool_size=20)
    yield database
    database.close()
    emptier()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def database(request: pytest.FixtureRequest) -> Database:
    """The same test on both."""
    database: Database = request.getfixturevalue(f"{request.param}_database")
    return database
