"""What goes wrong at the first steps is named, with the next step beside it."""

import shlex

import pytest

from app.cli.overview.places import look
from tests.style.test_examples import understood


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("jobs/job_1", "lethe job show job_1"),
        ("stores/shop", "lethe store check shop"),
        ("stores/shop/backup-sessions/bks_1", "lethe backup list shop"),
        ("stores/shop/agreements/agr_1", "lethe replication agreement show shop agr_1"),
        ("stores/shop/erasure-cycles/ec_1", "lethe erasure files shop ec_1"),
        ("instances/host-1", "lethe instance list"),
    ],
)
def test_where_to_look_is_a_command(subject, expected) -> None:
    assert look(subject) == expected
    understood(shlex.split(expected)[1:])


def test_place_of_a_newer_service_is_left_as_it_is() -> None:
    assert look("moons/moon_1") == "moons/moon_1"


@pytest.mark.parametrize(("typed", "meant"), [("purg", "purge"), ("stores", "store"), ("jobs", "job")])
def test_top_level_asks_what_was_meant(lethe, typed, meant) -> None:
    run = lethe(typed)
    assert run.code == 64
    assert f"No such command '{typed}'. Did you mean '{meant}'" in run.err
    assert "Did you mean" not in lethe("zzzzqq").err
