"""`make help` tells every habit of the house and nothing else is a target; `make test` runs pytest twice."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.style.source_files import ROOT

HABITS = {
    *(
        "setup",
        "demo",
        "run",
        "fmt",
        "check",
        "audit",
        "chaos",
        "console-pictures",
        "deploy",
        "docs",
        "sbom",
        "wheels",
        "test",
        "test-fast",
        "test-long",
        "bench",
        "openapi",
        "runbook",
        "client",
        "migrate",
    ),
    "help",
}


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


TESTS = """
import pytest

def test_beside_others(): {beside}

@pytest.mark.alone
def test_alone(): {alone}

@pytest.mark.long
def test_long(): assert False
"""


def _run_tests(
    directory: Path, *arguments: str, beside: str = "pass", alone: str = "pass"
) -> tuple[int, str]:
    """The exit code of `make test` on two tests with these bodies, and what it printed."""
    (directory / "pytest.ini").write_text("[pytest]\nmarkers =\n  alone: x\n  long: x\n")
    tests = directory / "test_both.py"
    tests.write_text(TESTS.format(beside=beside, alone=alone))
    command = [ROOT / "setup" / "run-tests.sh", "0", "-p", "no:cacheprovider", *arguments, tests]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return ran.returncode, ran.stdout


def test_tests_that_measure_time_run_after_the_others(tmp_path: Path) -> None:
    code, said = _run_tests(tmp_path)
    assert code == 0
    assert re.findall(r"(\d+) passed, (\d+) deselected", said) == [("1", "2"), ("1", "2")]


@pytest.mark.parametrize("failing", ["beside", "alone"])
def test_failure_in_either_run_is_one_of_make_test(tmp_path: Path, failing: str) -> None:
    code, said = _run_tests(tmp_path, **{failing: "assert False"})
    assert code == 1
    assert len(re.findall("1 (?:passed|failed), 2 deselected", said)) == 2


@pytest.mark.parametrize("chosen", ["test_alone", "test_beside_others"])
def test_arguments_may_leave_one_run_without_tests(tmp_path: Path, chosen: str) -> None:
    code, said = _run_tests(tmp_path, "-k", chosen)
    assert (code, said.count("1 passed, 2 deselected")) == (0, 1)


def test_arguments_that_select_nothing_are_a_failure(tmp_path: Path) -> None:
    code, _ = _run_tests(tmp_path, "-k", "no_such_test")
    assert code == 5


def test_fast_run_is_one_run_without_those_alone(tmp_path: Path) -> None:
    code, said = _run_tests(tmp_path, "--fast", alone="assert False")
    assert (code, re.findall(r"(\d+) passed, (\d+) deselected", said)) == (0, [("1", "2")])


def test_files_that_the_fast_run_leaves_out_are_there() -> None:
    listed = (ROOT / "tests" / "slow.txt").read_text().split()
    assert [line for line in listed if not (ROOT / "tests" / line).is_file()] == []


def test_marks_that_are_asked_for_take_the_place_of_not_long(tmp_path: Path) -> None:
    code, said = _run_tests(tmp_path, "-m", "long or alone")
    assert (code, re.findall(r"1 (\w+), 2 deselected", said)) == (1, ["failed", "passed"])


def test_arguments_that_pytest_does_not_take_end_it(tmp_path: Path) -> None:
    assert _run_tests(tmp_path, "--no-such-option")[0] == 4
