"""kill -9 in the middle of the smaller purges of SymmetricDS: rows, counts and archives are right."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.crashes import CRASHING
from tests.journeys.ground import CUTOFF, add_store, in_the_past, purge_request
from tests.journeys.service import Service, serving, succeeded
from tests.oracles.symmetricds import Place, Rows, build, snapshot
from tests.oracles.symmetricds_upkeep import TABLES, expected_after_upkeep
from tests.regressions.old_rows import MUST_BE_THERE, OLD_ROWS

pytestmark = pytest.mark.journey

ROWS = 400
SLOW: dict[str, Any] = {"archive": True, "max_rows_in_tx": 25, "rows_per_s": 120}
TOGETHER = ("STATISTICS", "TRIGGER_HIST", "STRANDED")
"""They write different tables, so they run at once; the rows of STRANDED name one history, which stays."""


def _rows(kinds: tuple[str, ...]) -> Rows:
    found: Rows = {}
    for kind in kinds:
        for table, make in OLD_ROWS[kind].items():
            found[table] = [make(number) for number in range(1, ROWS + 1)]
        for table, rows in MUST_BE_THERE.get(kind, {}).items():
            found[table] = [*found.get(table, []), *rows]
    return in_the_past(found)


def _await_progress(service: Service, jobs: dict[str, str]) -> None:
    """Until each has done more than it had, or has ended."""
    seen = {kind: _done(service, job) for kind, job in jobs.items()}
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if all(_done(service, job) > seen[kind] for kind, job in jobs.items()):
            return
        time.sleep(0.05)
    raise AssertionError("no progress")


def _done(service: Service, job_id: str) -> float:
    job = service.client.jobs.get(job_id)
    if job.state == "SUCCEEDED":
        return float("inf")
    return 0 if job.progress is None else int(job.progress.done or 0)


def _hold(tmp_path: Path, url: str, *, kinds: tuple[str, ...], kills: int) -> None:
    place = Place(url, "3.x")
    build(place, _rows(kinds))
    before = snapshot(place)
    jobs: dict[str, str] = {}
    with serving(tmp_path / "service", CRASHING) as service:
        add_store(service.client, "shop", place)
        for kind in kinds:
            words = {"stranded": "REMOVE"} if kind == "STRANDED" else {}
            request = purge_request(place, kind=kind, **words, **SLOW)
            jobs[kind] = service.client.purges.create("shop", request).id
        for _ in range(kills):
            _await_progress(service, jobs)
            service.crash()
        results = {kind: succeeded(service.client, job) for kind, job in jobs.items()}
        for kind, job in jobs.items():
            verified = succeeded(service.client, service.client.archives.verify(job).id)
            assert verified["rows"] == sum(results[kind]["removed"].values())
    expected = before
    for kind in kinds:
        left = expected_after_upkeep(kind, place, expected, CUTOFF)
        gone = {table: len(expected[table]) - len(left[table]) for table in TABLES[kind]}
        assert sum(gone.values()) >= ROWS - 1
        assert (results[kind]["removed"], results[kind]["counts"]) == (gone, "EXACT")
        expected = left
    assert snapshot(place) == expected


def test_a_kill_in_the_middle_leaves_rows_counts_and_archives_exact(
    tmp_path: Path, postgresql_url: str
) -> None:
    """Three kinds at once."""
    _hold(tmp_path, postgresql_url, kinds=TOGETHER, kills=1)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", TABLES)
def test_many_kills_in_the_middle_leave_rows_counts_and_archives_exact(
    tmp_path: Path, postgresql_url: str, kind: str
) -> None:
    """Each kind alone, killed at each of its steps."""
    _hold(tmp_path, postgresql_url, kinds=(kind,), kills=4)
