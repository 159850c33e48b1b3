"""The benchmark of the pool itself, on databases so small that its times say nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.spark_pool import main

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.long
@pytest.mark.journey
def test_small_fleet_gives_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--stores", "2", "--rows", "2000", "--jobs", "2", "--rounds", "1", "--no-starts"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("OK")


@pytest.mark.parametrize(
    "name",
    [*(pytest.param(each, marks=pytest.mark.long) for each in ("api", "purge", "purge_mariadb")), "spark"],
)
def test_program_that_is_run_by_its_path_finds_the_package_spark(name: str) -> None:
    """`benchmarks/spark.py` lies where a script of that folder looks first."""
    ran = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), "--help"], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert "usage:" in ran.stdout
