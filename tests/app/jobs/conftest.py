"""A workbench of jobs on each metadata database."""

import pytest

from app.db import Database
from app.settings import Settings
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench


@pytest.fixture
def bench(database: Database, clock: FakeClock, settings: Settings) -> Workbench:
    return Workbench(database, clock, settings)


@pytest.fixture
def sqlite_bench(sqlite_database: Database, clock: FakeClock, settings: Settings) -> Workbench:
    return Workbench(sqlite_database, clock, settings)


@pytest.fixture
def postgresql_bench(postgresql_database: Database, clock: FakeClock, settings: Settings) -> Workbench:
    return Workbench(postgresql_database, clock, settings)
