"""Runs the benchmarks and keeps what they printed: `make bench` writes docs/benchmarks.md from it.

Each run is a process of its own, in the configuration that its program has by itself. What it printed, its
exit code, the commit, the machine and the versions go into benchmarks/records, a file a run; the page is made
of those files alone. A run that was not asked for keeps its record, with the commit and day of then.
Exit status 1: a run failed or missed what was asked of it.

    python -m benchmarks.report --only rows --only api
    python -m benchmarks.report --page
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import Machine, this_machine

ROOT: Final = Path(__file__).parents[1]
RECORDS: Final = ROOT / "benchmarks" / "records"
PAGE: Final = ROOT / "docs" / "benchmarks.md"


@dataclass(frozen=True, slots=True)
class Run:
    """A benchmark as it is run for the page: its program with arguments, and what it is measured against."""

    name: str
    title: str
    peer: str
    program: str
    arguments: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """As it is typed."""
        return " ".join(("python", "-m", self.program, *self.arguments))


RUNS: Final = (
    Run(
        "purge",
        "Outgoing purge, PostgreSQL",
        "SymmetricDS's own statements, one connection, on a copy of the same database",
        "benchmarks.purge",
    ),
    Run(
        "purge-mariadb",
        "Outgoing purge, MariaDB",
        "SymmetricDS's own statements, one connection, on a copy of the same database",
        "benchmarks.purge_mariadb",
        ("--rounds", "3"),
    ),
    Run(
        "rows",
        "Purge ROWS, MariaDB",
        "pt-archiver of percona-toolkit, in bulk and row by row, with a writer beside both",
        "benchmarks.rows",
    ),
    Run("purge-eta", "ETA of a purge", "the time that really remained", "benchmarks.purge_eta"),
    Run("erase", "Erasure of JE logs", "zlib.adler32 and a copy over the same bytes", "benchmarks.erase"),
    Run(
        "extinction",
        "Extinction of a replica",
        "the same records deleted by one change each, in requests of 10,000",
        "benchmarks.extinction",
    ),
    Run(
        "replication",
        "Replication session",
        "COPY or a bulk insert of the same rows, and one change in a request",
        "benchmarks.replication",
    ),
    Run(
        "slony",
        "Event cleanup of Slony-I",
        "Slony-I's cleanupEvent() with its lock and COMMIT, on a copy of the same database",
        "benchmarks.slony",
    ),
    Run(
        "slony-feed",
        "Changes of a Slony-I node",
        "the same rows of the log by psycopg from a cursor of the server, nothing made of them",
        "benchmarks.slony_feed",
    ),
    Run(
        "sources",
        "JE logs as a source of Spark",
        "the inline reader, by processor time, and one core beside two",
        "benchmarks.sources",
    ),
    Run("spark", "Spark against inline", "the same units without Spark", "benchmarks.spark"),
    Run(
        "spark-peers",
        "Threads, a pool of processes and Spark",
        "each other, over the same units",
        "benchmarks.spark_peers",
    ),
    Run("small-fleet", "Purges of small stores", "nothing: a count", "benchmarks.small_fleet"),
    Run("api", "GET job beside a purge", "the same load without a purge", "benchmarks.api"),
    Run("api-bare", "GET job, processor time", "a bare FastAPI handler", "benchmarks.api_bare"),
    Run("mixed", "Mixed load, one process", "the same service when it is idle", "benchmarks.mixed"),
    Run(
        "mixed-postgresql",
        "Mixed load, one process on PostgreSQL",
        "the same service when it is idle",
        "benchmarks.mixed",
        ("--metadata", "postgresql"),
    ),
    Run(
        "mixed-two",
        "Mixed load, two API processes on PostgreSQL",
        "the same service when it is idle",
        "benchmarks.mixed",
        ("--metadata", "postgresql", "--api-processes", "2"),
    ),
    Run("start", "Start of the service", "the import of its libraries alone", "benchmarks.start"),
    Run("console", "Open consoles", "the same service without consoles", "benchmarks.console"),
    Run("walk", "Code that one purge enters", "nothing: a count", "benchmarks.walk"),
)


@dataclass(frozen=True, slots=True)
class Record:
    """What a run printed, and where and when; times in seconds."""

    name: str
    command: str
    day: str
    commit: str
    exit_code: int
    took_s: float
    load: float
    machine: Machine
    lines: tuple[str, ...]

    @property
    def misses(self) -> tuple[str, ...]:
        """The lines of figures that were asked to be better."""
        return tuple(line for line in self.lines if "MISSED" in line.split())

    @property
    def verdict(self) -> str:
        """One word, and how many figures missed."""
        if self.misses:
            return f"{len(self.misses)} missed"
        return "held" if self.exit_code == 0 else f"failed (exit code {self.exit_code})"


def measured(run: Run) -> Record:
    """Run it, showing what it prints as it comes."""
    began, load = time.monotonic(), os.getloadavg()[0]
    print(f"== {run.name}: {run.command}", flush=True)
    lines = []
    with subprocess.Popen(
        [sys.executable, "-m", run.program, *run.arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    return Record(
        run.name,
        run.command,
        datetime.now(UTC).date().isoformat(),
        _commit(),
        process.returncode,
        round(time.monotonic() - began, 1),
        round(load, 1),
        this_machine(),
        tuple(line for line in lines if line and not line.startswith("{")),
    )


def keep(record: Record, folder: Path = RECORDS) -> None:
    """Write it in the place of the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(record), indent=1, ensure_ascii=False) + "\n"
    (folder / f"{record.name}.json").write_text(text)


def kept(folder: Path = RECORDS) -> dict[str, Record]:
    """All records, by the name of their run."""
    return {path.stem: _read(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))}


def page(records: dict[str, Record]) -> str:
    """docs/benchmarks.md: a table of verdicts, the misses, then each run with its machine and output."""
    ran = [(run, records[run.name]) for run in RUNS if run.name in records]
    missing = [run for run in RUNS if run.name not in records]
    return "\n".join([*_HEAD, *_table(ran, missing), *_misses(ran), *_sections(ran)]) + "\n"


_HEAD = (
    "# Benchmarks",
    "",
    "Made by `make bench`; do not edit. Every figure is a ratio against a named peer in the same run,",
    "or is only reported.",
    "Each run is the whole command as it stands here, in the configuration that a new service has.",
    "Service, databases, peers and clients share one machine.",
    '`make bench args="--only rows"` measures one run anew.',
    "",
)


def _table(ran: Iterable[tuple[Run, Record]], missing: Iterable[Run]) -> Iterable[str]:
    yield from ("| run | measured against | verdict |", "|---|---|---|")
    for run, record in ran:
        yield f"| [{run.title}](#{run.name}) | {run.peer} | {record.verdict} |"
    for run in missing:
        yield f'| {run.title} | {run.peer} | not measured yet: `make bench args="--only {run.name}"` |'
    yield ""


def _misses(ran: Iterable[tuple[Run, Record]]) -> Iterable[str]:
    lines = [f"{run.name}: {line}" for run, record in ran for line in record.misses]
    if lines:
        yield from ("## What missed", "", "```text", *lines, "```", "")


def _sections(ran: Iterable[tuple[Run, Record]]) -> Iterable[str]:
    for run, record in ran:
        yield from (f"## {run.title} {{ #{run.name} }}", "", f"Against: {run.peer}.", "")
        yield from (f"By `{record.command}`:", "")
        yield from ("```text", *record.lines, "```", "")
        yield f"{record.day}, commit {record.commit}, {record.took_s:,.0f} s,"
        yield f"load at its start {record.load:g}."
        yield from (record.machine.line(), "")


def _commit() -> str:
    """The commit of this tree; `+` where files differ from it."""
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _read(document: dict[str, Any]) -> Record:
    found = document.pop("machine")
    machine = Machine(**found | {"versions": tuple(found["versions"])})
    return Record(**document | {"machine": machine, "lines": tuple(document["lines"])})


def main(arguments: Sequence[str]) -> int:
    """Measure what was asked for, write the page; 0: all that was measured held."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [run.name for run in RUNS]
    parser.add_argument("--only", action="append", choices=names, help="repeatable; default: all")
    parser.add_argument("--page", action="store_true", help="measure nothing, only write the page")
    options = parser.parse_args(arguments)
    wanted = [] if options.page else options.only or names
    held = True
    for run in RUNS:
        if run.name in wanted:
            record = measured(run)
            keep(record)
            held = held and record.exit_code == 0
            PAGE.write_text(page(kept()))
    PAGE.write_text(page(kept()))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
