"""A workbench of jobs on SQLite: nothing of an archive depends on the metadata's kind."""

import pytest

from app.db import Database
from app.settings import Settings
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench


@pytest.fixture
def bench(sqlite_database: Database, clock: FakeClock, settings: Settings) -> Workbench:
    return Workbench(sqlite_database, clock, settings)
