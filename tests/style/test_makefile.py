"""`make help` tells every habit of the house, and nothing else is a target."""

import re
import subprocess

from tests.style.source_files import ROOT

HABITS = {"setup", "demo", "run", "fmt", "check", "test", "test-long", "bench", "openapi", "migrate", "help"}


def _make(*arguments: str) -> str:
    run = subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return run.stdout


def _phony_targets() -> set[str]:
    return set(re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_habit_is_a_target() -> None:
    assert _phony_targets() == HABITS


def test_help_lists_every_target_with_what_it_does() -> None:
    lines = re.findall(r"^  make (\S+) +(\S.*)$", _make("help"), re.MULTILINE)
    assert {name for name, _ in lines} == _phony_targets()


def test_make_without_a_target_shows_the_help() -> None:
    assert _make() == _make("help")
