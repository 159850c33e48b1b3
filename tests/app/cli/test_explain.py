"""`lethe explain`: the runbook on the command line, without a service."""

import json

import pytest

from app.cli.main import main
from app.cli.shell.exits import ExitCode
from app.runbook.registry import RUNBOOK, nearest


def test_code_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "EPOCH_AHEAD"]) == ExitCode.OK
    printed = capsys.readouterr().out
    assert RUNBOOK["EPOCH_AHEAD"].meaning in printed
    assert RUNBOOK["EPOCH_AHEAD"].next in printed


@pytest.mark.parametrize("written", ["target-unreachable", "urn:lethe:problem:target-unreachable"])
def test_code_may_be_written_as_a_problem_has_it(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", written, "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["code"] == "TARGET_UNREACHABLE"
    assert told["help"] == "docs/reference/runbook.md#target_unreachable"
    assert set(told) == {"code", "meaning", "next", "passes_by_itself", "seen", "help"}


def test_unknown_code_ends_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "TARGET_UNREACHABEL"]) == ExitCode.USAGE
    caught = capsys.readouterr()
    assert "TARGET_UNREACHABLE" in caught.err
    assert not caught.out


def test_unknown_code_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "xyzzy", "--json"]) == ExitCode.USAGE
    assert json.loads(capsys.readouterr().out)["code"] == "CODE_UNKNOWN"


def test_part_of_a_code_leads_to_those_that_contain_it() -> None:
    assert "EPOCH_AHEAD" in nearest("ahead")
