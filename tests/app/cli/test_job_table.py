"""`lethe job list` on a terminal: one line a job, with its state and what is really gone."""

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from lethe_client import Job
from lethe_client.results import Progress
from rich.console import Console

from app.cli.shell.job_table import age, job_table, removed

NOW = datetime(2026, 11, 23, 3, tzinfo=UTC)
ID = "job_01jdb5q6w3r8m2k4n7p9s0t1v2"


def job(**fields: object) -> Job:
    named = {"id": ID, "kind": "PURGE", "state": "RUNNING", "store": "shop", "created_at": NOW} | fields
    return Job(**named)  # type: ignore[arg-type]


def lines(*jobs: Job, width: int) -> list[str]:
    screen = StringIO()
    Console(file=screen, width=width, force_terminal=True, color_system=None).print(
        job_table(jobs, width=width, now=NOW)
    )
    return screen.getvalue().splitlines()


def test_the_longest_job_takes_one_line_at_80_columns() -> None:
    long = job(
        kind="REPLICATION_SESSION",
        state="SUCCEEDED",
        store="orders-of-the-eastern-region-" + "x" * 34,
        created_at=NOW - timedelta(days=364),
        reason="asked for on the command line " * 5,
        result={"removed": {"sym_data": 1_234_567_890, "sym_data_event": 9}},
    )
    head, line = lines(long, width=80)
    assert head.split() == ["job", "state", "kind", "store", "removed", "age"]
    assert len(line.rstrip()) <= 80
    assert line.startswith(f"{ID} SUCCEEDED ")
    assert line.split()[-3:] == ["1,234,567,899", "364", "d"]


def test_a_wide_terminal_also_shows_progress_and_reason() -> None:
    running = job(
        progress=Progress(unit="rows", done=10, total=40, fraction=0.25, removed=3), reason="nightly"
    )
    assert "25 %, 10 of 40 rows" in lines(running, width=140)[1]
    head, line = lines(running, width=1000)
    assert head.split()[-2:] == ["progress", "reason"]
    assert line.rstrip().endswith("nightly")
    assert "3" in line.split()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"progress": Progress(unit="rows", done=100, removed=7)}, 7),
        (
            {"progress": Progress(unit="rows", done=100, removed=7), "result": {"removed": {"a": 5, "b": 3}}},
            8,
        ),
        ({"result": {"files": 3}}, None),
    ],
)
def test_removed_are_rows_that_are_gone_not_those_that_were_examined(
    fields: dict[str, object], expected: int | None
) -> None:
    assert removed(job(**fields)) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-5, "0 s"), (0, "0 s"), (59, "59 s"), (60, "1 m"), (3_599, "59 m"), (86_399, "23 h"), (172_800, "2 d")],
)
def test_age_has_one_unit(seconds: int, expected: str) -> None:
    assert age(job(created_at=NOW - timedelta(seconds=seconds)), now=NOW) == expected
