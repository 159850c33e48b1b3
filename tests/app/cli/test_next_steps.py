"""What goes wrong at the first steps is named, with the next step beside it."""

import pytest


@pytest.mark.parametrize(("typed", "meant"), [("purg", "purge"), ("stores", "store"), ("jobs", "job")])
def test_top_level_asks_what_was_meant(lethe, typed, meant) -> None:
    run = lethe(typed)
    assert run.code == 64
    assert f"No such command '{typed}'. Did you mean '{meant}'" in run.err
    assert "Did you mean" not in lethe("zzzzqq").err
