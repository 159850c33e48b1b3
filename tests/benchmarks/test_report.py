"""docs/benchmarks.md is made of the records, and no benchmark is left out of it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.machine import Machine

MACHINE = Machine("a processor", 2, 24.0, "6.1", "3.11.7", ("pyspark 4.3.0",))
HELD = report.Record(
    name="rows",
    command="python -m benchmarks.rows",
    day="2026-11-25",
    commit="abc1234",
    exit_code=0,
    took_s=12.3,
    load=0.1,
    machine=MACHINE,
    lines=("speed 2.10 x >= 2  OK",),
)


def test_page_is_what_the_records_say() -> None:
    assert report.PAGE.read_text() == report.page(report.kept())


def test_every_benchmark_has_a_run() -> None:
    programs = {
        path.stem for path in (report.ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()
    }
    ran = {run.program.removeprefix("benchmarks.") for run in report.RUNS}
    assert programs - {"report"} == ran


def test_names_of_runs_are_unique_and_each_record_has_one() -> None:
    names = [run.name for run in report.RUNS]
    assert len(names) == len(set(names))
    assert set(report.kept()) <= set(names)


def test_misses_and_failures_are_shown_as_such() -> None:
    missed = replace(HELD, exit_code=1, lines=("speed 0.98 x >= 2  MISSED", "rest 1 OK"))
    text = report.page({"rows": missed})
    assert "| 1 missed |" in text
    assert "## What missed\n\n```text\nrows: speed 0.98 x >= 2  MISSED\n```" in text
    failed = replace(HELD, exit_code=3, lines=())
    assert "| failed (exit code 3) |" in report.page({"rows": failed})
    assert "| held |" in report.page({"rows": HELD})
    assert "What missed" not in report.page({"rows": HELD})


def test_a_run_is_kept_as_it_was_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = report.Run("walk", "Walk", "nothing", "benchmarks.walk", ("--no-such-option",))
    record = report.measured(run)
    assert record.exit_code == 2
    assert record.verdict == "failed (exit code 2)"
    report.keep(record, tmp_path)
    assert report.kept(tmp_path) == {"walk": record}
    assert capsys.readouterr().out.startswith("== walk: python -m benchmarks.walk --no-such-option\n")
    assert f"Python {sys.version.split()[0]}" in record.machine.line()
