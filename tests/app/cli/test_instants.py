"""Options that take an instant: a plain date is midnight UTC, and the command says what it took."""

import importlib
from datetime import UTC, datetime
from typing import Any

import pytest
import typer
from typer.main import get_command

from app.cli.main import Root
from app.cli.shell.arguments import instant

PURGES = "POST /v1/stores/shop/purges"
JOB = {"id": "job_1", "kind": "PURGE", "state": "QUEUED", "created_at": "2026-11-20T08:00:00Z"}


def test_a_date_is_midnight_utc(service, lethe) -> None:
    """`--cutoff 2026-11-01` was refused: it has no offset."""
    service.on(PURGES, (202, JOB))
    run = lethe("purge", "run", "shop", "--cutoff", "2026-11-01", "--no-wait", "--json")
    assert run.code == 0, run.err
    assert service.bodies(PURGES)[0]["cutoff"] == "2026-11-01T00:00:00+00:00"
    assert "--cutoff 2026-11-01 is taken as 2026-11-01T00:00:00Z." in run.err.splitlines()
    assert run.json()["id"] == "job_1"


def test_a_time_is_taken_silently(service, lethe) -> None:
    service.on(PURGES, (202, JOB))
    run = lethe("purge", "run", "shop", "--cutoff", "2026-11-01T01:00:00+01:00", "--no-wait")
    assert run.code == 0, run.err
    assert "taken as" not in run.err


@pytest.mark.parametrize(
    "value", ["2026-11-01T03:00:00", "20261101", "2026-W44-7", "2026-11-31", "2026-11", "yesterday", ""]
)
def test_what_is_neither_is_refused(value: str) -> None:
    with pytest.raises(typer.BadParameter):
        instant(value, option="--cutoff")


def test_a_date_has_no_zone_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    assert instant("2026-11-01", option="--since") == datetime(2026, 11, 1, tzinfo=UTC)


def _options(command: Any, words: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        return [(words, each) for each in command.params]
    return [found for word, child in children.items() for found in _options(child, (*words, word))]


def test_every_option_of_an_instant_says_that_it_takes_a_date() -> None:
    """An option with the metavar TIME is read by `instant`, and its help says so."""
    found = [
        (*words, each.opts[0], each.help)
        for name, noun in Root.nouns.items()
        for words, each in _options(get_command(importlib.import_module(noun.module).app), (name,))
        if each.metavar == "TIME"
    ]
    assert len(found) >= 12
    assert [each for each in found if "RFC 3339, or a date" not in each[-1]] == []
