"""Which cases `make test` leaves to other commits, so that it takes half the time and nothing goes untested.

Tests that cost much and have neighbours which prove the same on another level, on another database or from
another case stand in `tests/rotating.txt`: a line is a file, whose tests run together, or a function, whose
cases are dealt out. Each is run at one commit of five (`LETHE_TEST_TURN=0` to `4`); `make test turn=all` and
`make test-long` run them all. All others run every time.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from zlib import crc32

import pytest

TESTS = Path(__file__).parent
TURNS = 5
SETTING = "LETHE_TEST_TURN"
ALL = "all"
LISTED = {line: place for place, line in enumerate((TESTS / "rotating.txt").read_text().split())}
ENGINES = ("sqlite", "postgresql")
ON_BOTH = {"test_conditional_requests.py", "test_processes.py", "test_rows_purges_killed.py"}


def turn_of_this_run() -> str:
    """What `setup/run-tests.sh` has drawn by the commit, or was given; all where pytest is called by itself.

    Raises:
        pytest.UsageError: there is no such turn.
    """
    turn = os.environ.get(SETTING) or ALL
    if turn != ALL and turn not in map(str, range(TURNS)):
        raise pytest.UsageError(f"{SETTING}={turn}: give a number from 0 to {TURNS - 1}, or {ALL}")
    return turn


def leave_to_other_turns(items: list[pytest.Item], turn: str) -> None:
    """Mark as long what this turn leaves out."""
    if turn == ALL:
        return
    met: Counter[str] = Counter()
    for item in items:
        line = _line_of(item)
        if line is None:
            continue
        place = LISTED[line] + (met[line] if "::" in line else 0)
        met[line] += 1
        if place % TURNS != int(turn):
            item.add_marker(pytest.mark.long)


def _line_of(item: pytest.Item) -> str | None:
    """The line that lists a test; None: it runs every time. What is long already takes no part."""
    if item.get_closest_marker("long"):
        return None
    path = item.path.relative_to(TESTS).as_posix()
    named = f"{path}::{getattr(item, 'originalname', item.name)}"
    return next((line for line in (path, named) if line in LISTED), None)


def share_metadata(items: list[pytest.Item]) -> None:
    """Each test of a running service that could have either metadata has one, and both in the long run.

    Which one is drawn by its name. What is below HTTP is tested on both (tests/app), and so is what is about
    the metadata itself.
    """
    shared: dict[tuple[Path, str], set[str]] = {}
    found = []
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if (engine := params.get("service")) in ENGINES and item.path.name not in ON_BOTH:
            name = (item.path, getattr(item, "originalname", item.name))
            shared.setdefault(name, set()).add(engine)
            found.append((item, name, engine))
    for item, name, engine in found:
        drawn = ENGINES[crc32(name[1].encode()) % len(ENGINES)]
        if len(shared[name]) == len(ENGINES) and engine != drawn:
            item.add_marker(pytest.mark.long)
