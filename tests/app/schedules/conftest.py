"""A bench of schedules on both kinds of metadata."""

import pytest

from app.db import Database
from app.settings import Settings
from tests.app.schedules.schedules_bench import SchedulesBench, WallClock


@pytest.fixture
def bench(database: Database, settings: Settings) -> SchedulesBench:
    clock = WallClock()
    return SchedulesBench(database, settings, clock)
