"""Metadata as the tests of the application have it, and real purges on it, in this process."""

from __future__ import annotations

import pytest

from app.db import Database
from app.settings import Settings
from tests.app.conftest import (  # noqa: F401 -- fixtures
    clock,
    database,
    emptier,
    migrated_postgresql,
    postgresql_database,
    settings,
    sqlite_database,
    sqlite_template,
)
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench
from tests.regressions.purges import Purges


@pytest.fixture
def bench(sqlite_database: Database, clock: FakeClock, settings: Settings) -> Workbench:  # noqa: F811
    return Workbench(sqlite_database, clock, settings)


@pytest.fixture
def purges(bench: Workbench) -> Purges:
    return Purges(bench)
