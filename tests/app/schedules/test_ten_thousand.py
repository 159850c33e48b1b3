"""What `test_against_minutes.py` asks of a few, of ten thousand: `make test-long`."""

from __future__ import annotations

import pytest

from app.db import Database
from app.settings import Settings
from tests.app.schedules.worlds import IN_A_WORLD, crons_differ, run_world, windows_differ, world_bench


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand_schedules_fire_as_the_minutes_say(
    sqlite_database: Database, settings: Settings
) -> None:
    bench = world_bench(sqlite_database, settings)
    assert sum(run_world(bench, seed) for seed in range(100, 100 + 10_000 // IN_A_WORLD + 1)) > 10_000


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_ten_thousand_crontabs_fit_the_minutes_on_and_back() -> None:
    assert [wrong for seed in range(1_000, 11_000) if (wrong := crons_differ(seed))] == []


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_thousand_sets_of_windows_are_open_as_the_model_says() -> None:
    assert [wrong for seed in range(1_000, 2_000) if (wrong := windows_differ(seed))] == []
