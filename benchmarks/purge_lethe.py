"""Lethe's side of the purge benchmark, in a process of its own so that its memory can be told."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL, make_url

from benchmarks.purge_shapes import CUTOFF
from spark.purge.statements import STEPS
from spark.targets.connection import Target
from tests.oracles.inline_purge import purge_inline

WORKERS = 2
ROWS_PER_UNIT = 10_000


@dataclass(frozen=True)
class Run:
    """What one purge took.

    Attributes:
        seconds: from the planning of the first range to the last COMMIT.
        longest_ms: the longest unit, which is the longest that a writer can have waited for it.
        peak_mib: the highest resident set of the process, the interpreter and its libraries included.
    """

    seconds: float
    units: int
    longest_ms: float
    retries: int
    peak_mib: float


def run_in_child(conninfo: str, *, rows_per_unit: int) -> Run:
    """Purge the whole database in a new process."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_purge, conninfo, rows_per_unit).result()


def _purge(conninfo: str, rows_per_unit: int) -> Run:
    tally = purge_inline(
        _target(conninfo), CUTOFF, rows_in_unit=dict.fromkeys(STEPS, rows_per_unit), workers=WORKERS
    )
    return Run(tally.seconds, tally.units, tally.longest_s * 1000, tally.retries, _peak_mib())


def _target(conninfo: str) -> Target:
    url = make_url(conninfo)
    bare = URL.create("postgresql+psycopg", url.username, None, url.host, url.port, url.database, url.query)
    password = None if url.password is None else str(url.password)
    return Target(url=bare.render_as_string(hide_password=False), password=password, schema=None)


def _peak_mib() -> float:
    # VmHWM and not getrusage: that one also remembers the process which this one was forked from.
    (peak,) = [
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")
    ]
    return int(peak.split()[1]) / 1024
