"""What `test_against_minutes.py` asks of a few, of ten thousand: `make test-long`."""

from __future__ import annotations

import pytest

from app.db import Database
from app.settings import Settings
from tests.app.schedules.shared_worlds import IN_A_WORLD, outcomes_of
from tests.app.schedules.worlds import crons_differ, windows_differ

WORLDS = 10_000 // IN_A_WORLD + 1
ON_POSTGRESQL = 34


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_ten_thousand_schedules_fire_as_the_minutes_say(
    sqlite_database: Database, settings: Settings
) -> None:
    outcomes = outcomes_of(sqlite_database, settings, range(100, 100 + WORLDS - ON_POSTGRESQL))
    assert outcomes.total() > 10_000, outcomes


@pytest.mark.long
@pytest.mark.postgresql
@pytest.mark.timeout(7200)
def test_a_tenth_of_them_on_postgresql(postgresql_database: Database, settings: Settings) -> None:
    outcomes = outcomes_of(postgresql_database, settings, range(100 + WORLDS - ON_POSTGRESQL, 100 + WORLDS))
    assert outcomes.total() > 1_000, outcomes


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand_crontabs_fit_the_minutes_on_and_back() -> None:
    assert [wrong for seed in range(1_000, 11_000) if (wrong := crons_differ(seed))] == []


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_sets_of_windows_are_open_as_the_model_says() -> None:
    assert [wrong for seed in range(1_000, 2_000) if (wrong := windows_differ(seed))] == []
