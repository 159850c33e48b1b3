"""Random schedules in random zones under a clock that jumps, against a model that asks every minute."""

from __future__ import annotations

import pytest

from app.db import Database
from app.settings import Settings
from tests.app.schedules.shared_worlds import outcomes_of
from tests.app.schedules.worlds import crons_differ, windows_differ


@pytest.mark.parametrize("worlds", [range(3, 5), pytest.param(range(5), marks=pytest.mark.long)])
def test_three_instances_fire_as_the_minutes_say(
    sqlite_database: Database, settings: Settings, worlds: range
) -> None:
    outcomes = outcomes_of(sqlite_database, settings, worlds)
    assert min(outcomes[each] for each in ("SUBMITTED", "SKIPPED_RUNNING", "REFUSED")) > 10, outcomes


@pytest.mark.postgresql
@pytest.mark.parametrize("worlds", [1, pytest.param(2, marks=pytest.mark.long)])
def test_three_instances_on_postgresql_fire_as_the_minutes_say(
    postgresql_database: Database, settings: Settings, worlds: int
) -> None:
    outcomes = outcomes_of(postgresql_database, settings, range(5, 5 + worlds))
    assert outcomes["SUBMITTED"] > 10 * worlds, outcomes


def test_crontabs_fit_the_minutes_on_and_back() -> None:
    assert [wrong for seed in range(60) if (wrong := crons_differ(seed))] == []


def test_windows_are_open_in_the_minutes_that_the_model_says() -> None:
    assert [wrong for seed in range(6) if (wrong := windows_differ(seed))] == []
