"""Tests that are run at one commit of five: each is there, and none falls between the turns."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.rotation import ALL, LISTED, SETTING, TURNS
from tests.style.source_files import ROOT

TESTS = ROOT / "tests"
LISTED_SHARE_MAX = 0.25
"""Of the test functions: most tell of a fault at the commit that makes it."""


@cache
def _functions(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^(?: {4})?(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE))


def test_what_is_listed_is_there_once() -> None:
    written = (TESTS / "rotating.txt").read_text().split()
    assert len(written) == len(set(written))
    missing = []
    for line in written:
        path, _, function = line.partition("::")
        file = TESTS / path
        if not file.is_file() or (function and function not in _functions(file)):
            missing.append(line)
    assert missing == []


def test_a_file_is_not_listed_beside_its_functions() -> None:
    files = {line for line in LISTED if "::" not in line}
    assert [line for line in LISTED if "::" in line and line.partition("::")[0] in files] == []


def test_most_tests_are_run_each_time() -> None:
    every = sum(len(_functions(path)) for path in TESTS.rglob("test_*.py"))
    assert len(LISTED) < every * LISTED_SHARE_MAX


CASES = """
import pytest

@pytest.mark.parametrize("number", range(6))
def test_of_six(number): pass

def test_alone_in_its_line(): pass

def test_of_every_run(): pass

@pytest.mark.long
def test_of_the_long_run(): pass
"""
HOOKS = """
import pytest
import tests.rotation as rotation

rotation.TESTS = rotation.Path({folder!r})
rotation.LISTED = {{"test_cases.py::test_of_six": 0, "test_cases.py::test_alone_in_its_line": 1}}

def pytest_collection_modifyitems(items):
    rotation.leave_to_other_turns(items, rotation.turn_of_this_run())
"""


def _collected(folder: Path, turn: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  long: x\n")
    (folder / "test_cases.py").write_text(CASES)
    (folder / "conftest.py").write_text(HOOKS.format(folder=str(folder)))
    command = [ROOT / ".venv/bin/pytest", "-p", "no:cacheprovider", "--collect-only", "-q", "-m", "not long"]
    environment = {**os.environ, SETTING: turn, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    return subprocess.run([*command, folder], env=environment, capture_output=True, text=True, check=False)


def test_each_case_has_one_turn_and_the_others_have_all(tmp_path: Path) -> None:
    whole = re.findall(r"::(\S+)", _collected(tmp_path, ALL).stdout)
    assert len(whole) == 8
    seen: list[str] = []
    for turn in range(TURNS):
        found = re.findall(r"::(\S+)", _collected(tmp_path, str(turn)).stdout)
        assert "test_of_every_run" in found
        assert len([each for each in found if each.startswith("test_of_six")]) in (1, 2)
        seen += [each for each in found if each != "test_of_every_run"]
    assert sorted([*seen, "test_of_every_run"]) == sorted(whole)


@pytest.mark.parametrize("turn", ["5", "-1", "some"])
def test_a_turn_that_there_is_not_is_refused(tmp_path: Path, turn: str) -> None:
    ran = _collected(tmp_path, turn)
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{SETTING}={turn}: give a number from 0 to 4, or all" in ran.stderr + ran.stdout
