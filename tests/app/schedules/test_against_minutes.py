"""Random schedules in random zones under a clock that jumps, against a model that asks every minute."""

from __future__ import annotations

from app.db import Database
from app.settings import Settings
from tests.app.schedules.worlds import crons_differ, run_world, windows_differ, world_bench


def test_schedules_fire_as_the_minutes_say(sqlite_database: Database, settings: Settings) -> None:
    bench = world_bench(sqlite_database, settings)
    assert sum(run_world(bench, seed) for seed in range(5)) > 100


def test_crontabs_fit_the_minutes_on_and_back() -> None:
    assert [wrong for seed in range(60) if (wrong := crons_differ(seed))] == []


def test_windows_are_open_in_the_minutes_that_the_model_says() -> None:
    assert [wrong for seed in range(6) if (wrong := windows_differ(seed))] == []
