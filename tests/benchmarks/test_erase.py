"""The benchmark of the erasure itself, on environments so small that its figures say nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.erase import Gate, main

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_quick_form_measures_erases_and_gives_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--no-spark", "--no-service"]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = json.loads(lines[-1])
    assert [gate["name"].rpartition(": ")[2] for gate in found["gates"]] == [
        "walk",
        "plan, overwrite, proof",
        "pass over clean files",
    ] * 2
    assert not any(gate["judged"] for gate in found["gates"])
    for each in found["inline"]:
        assert each["refusals"] == []
        assert each["entry_count"] > each["erased_count"] > 1_000
        assert set(each["steps_s"]) == {"plan", "prepare", "overwrite", "proof"}
        assert min(each["adler_s"], each["walk_s"], each["read_s"], each["clean_s"]) > 0
    assert any(line.startswith("copy with fsync") for line in lines)


def test_gate_that_is_missed_counts_only_where_it_is_judged() -> None:
    assert not Gate("walk", 49.9, 50, "%").is_met
    assert Gate("walk", 49.9, 50, "%", judged=False).is_met
    assert Gate("waiting", 0.9, 1, "%", at_least=False).is_met
    assert not Gate("waiting", 1.1, 1, "%", at_least=False).is_met


def test_program_that_is_run_by_its_path_finds_the_package_spark() -> None:
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "erase.py"), "--help"], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert "usage:" in ran.stdout
