"""kill -9 in the middle of purges INCOMING and DATA_GAP: rows, counts, archive and sym_lock are right."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.journeys.crashes import CRASHING
from tests.journeys.ground import CUTOFF, add_store, connection_to, in_the_past, purge_request
from tests.journeys.service import Service, serving, succeeded
from tests.oracles.symmetricds import CUTOFF as ORACLE_CUTOFF
from tests.oracles.symmetricds import Place, Row, Rows, build, session, snapshot
from tests.oracles.symmetricds_incoming import expected_after
from tests.oracles.symmetricds_random_incoming import ODD_NODES

pytestmark = pytest.mark.journey

TABLES = {"INCOMING": "incoming_batch", "DATA_GAP": "data_gap"}
ACTIONS = {"INCOMING": "PURGE_INCOMING", "DATA_GAP": "PURGE_DATA_GAPS"}
SLOW: dict[str, Any] = {"archive": True, "max_rows_in_tx": 25, "rows_per_s": 350}
LOCKS = (
    "create table sym_lock (lock_action varchar(50) primary key, lock_type varchar(50) not null,"
    " locking_server_id varchar(255), lock_time timestamp, last_lock_time timestamp,"
    " last_locking_server_id varchar(255))"
)


def _rows(rng: Random) -> Rows:
    """Nodes whose ids interleave, and gaps that share their starts; most of both are old."""
    batches: list[Row] = [
        {
            "batch_id": 1_000 + 3 * number + rng.randrange(3),
            "node_id": node,
            "status": rng.choice(["OK"] * 8 + ["ER", None]),
            "create_time": ORACLE_CUTOFF + timedelta(minutes=rng.uniform(-900, 300) + number),
        }
        for node in rng.sample(ODD_NODES, 5)
        for number in range(300)
    ]
    gaps: list[Row] = [
        {
            "start_id": number // 3,
            "end_id": number,
            "status": rng.choice(["SK", "OK", "GP", None]),
            "create_time": ORACLE_CUTOFF,
            "last_update_time": ORACLE_CUTOFF + timedelta(minutes=rng.uniform(-900, 100)),
        }
        for number in range(2_400)
    ]
    return in_the_past({"incoming_batch": batches, "data_gap": gaps})


def _place(url: str, rng: Random) -> Place:
    place = Place(url, "2.x")
    build(place, _rows(rng))
    with session(place) as target:
        target.run(LOCKS)
    return place


def _run_with_kills(service: Service, places: dict[str, Place], *, kills: int) -> dict[str, str]:
    """Both purges at once, the service killed while both run; returns the jobs by kind."""
    jobs = {}
    for kind, place in places.items():
        store = kind.lower().replace("_", "-")
        add_store(service.client, store, place)
        jobs[kind] = service.client.purges.create(store, purge_request(place, kind=kind, **SLOW)).id
    for _ in range(kills):
        _await_progress(service, jobs)
        service.crash()
    return jobs


def _await_progress(service: Service, jobs: dict[str, str]) -> None:
    """Until both have done more than they had."""
    seen = {kind: _done(service, job) for kind, job in jobs.items()}
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if all(_done(service, job) > seen[kind] for kind, job in jobs.items()):
            return
        time.sleep(0.05)
    raise AssertionError("no progress")


def _done(service: Service, job_id: str) -> int:
    progress = service.client.jobs.get(job_id).progress
    return 0 if progress is None else int(progress.done or 0)


def _check(service: Service, kind: str, place: Place, before: Rows, job_id: str) -> None:
    expected = expected_after(kind, place, before, CUTOFF)
    result = succeeded(service.client, job_id)
    assert snapshot(place) == expected
    went = len(before[TABLES[kind]]) - len(expected[TABLES[kind]])
    assert result["removed"] == {TABLES[kind]: went}
    assert (result["counts"], result["archive"]["rows"]) == ("EXACT", went)
    assert succeeded(service.client, service.client.archives.verify(job_id).id)["rows"] == went
    with connection_to(place.url) as connection:
        total = connection.execute(
            "select sum(rows_affected)::bigint from lethe.unit_ledger where job_id = %s", (job_id,)
        ).fetchone()
        lock = connection.execute(
            "select locking_server_id, lock_time, last_locking_server_id from sym_lock"
            " where lock_action = %s",
            (ACTIONS[kind],),
        ).fetchall()
    assert total == (went,)
    assert lock == [(None, None, f"lethe-{job_id}")]


def test_kills_in_the_middle_leave_rows_counts_archive_and_lock_exact(
    tmp_path: Path, postgresql_url: str
) -> None:
    """Both kinds at once on one database; each attempt finds the row of sym_lock that the last one left."""
    place = _place(postgresql_url, Random(5))
    before = snapshot(place)
    with serving(tmp_path / "service", CRASHING) as service:
        jobs = _run_with_kills(service, dict.fromkeys(TABLES, place), kills=1)
        for job_id in jobs.values():
            succeeded(service.client, job_id)
        both = expected_after("DATA_GAP", place, expected_after("INCOMING", place, before, CUTOFF), CUTOFF)
        assert snapshot(place) == both
        for kind, job_id in jobs.items():
            other = next(name for name in TABLES if name != kind)
            _check(service, kind, place, {**before, TABLES[other]: both[TABLES[other]]}, job_id)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(10))
def test_many_kills_in_the_middle_leave_rows_counts_archive_and_lock_exact(
    tmp_path: Path, postgresql_url: str, seed: int
) -> None:
    """The same with more kills and other rows."""
    place = _place(postgresql_url, Random(seed))
    before = snapshot(place)
    with serving(tmp_path / "service", CRASHING) as service:
        jobs = _run_with_kills(service, {"INCOMING": place}, kills=5)
        _check(service, "INCOMING", place, before, jobs["INCOMING"])
