"""kill -9 of the service while a changelog is trimmed: the purge vector always tells what is gone."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.targets.connection import Connection, Target
from tests.http.replica_stores import make_replica
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for
from tests.spark.replication.replica_tables import (
    left_in_changelog,
    opened,
    postgresql_target,
    put_records,
    vectors,
)

OLD_S = int(time.time()) - 100_000
ROWS = 600
RIDS = (2, 3)
PATIENCE_S = 90.0


@pytest.fixture
def killed_service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service of the test's own, which dies and comes back."""
    settings = {"LETHE_JOB_RETRY_BACKOFF_MAX_S": "1", "LETHE_CRASH_LOOP_MAX": "100"}
    service = ServiceProcess(tmp_path / "service", settings=settings).start()
    yield service
    service.kill9()


def _csns(rid: int) -> list[Csn]:
    return [Csn.of(OLD_S + number, 0, rid) for number in range(ROWS)]


def _check(conn: Connection) -> int:
    """What is gone is what the purge vector says, record by record; how many are gone."""
    with conn.transaction(read_only=True):
        left, purged = left_in_changelog(conn), vectors(conn)[2]
    for rid in RIDS:
        expected = {csn for csn in _csns(rid) if rid not in purged or csn > purged[rid]}
        assert {csn for csn in left if csn.rid == rid} == expected
        assert rid not in purged or purged[rid] in _csns(rid)
    return ROWS * len(RIDS) - len([csn for csn in left if csn.rid in RIDS])


def _goes_on(conn: Connection, seen: int) -> int:
    """Wait until more are gone than were seen, or all; how many."""
    deadline = time.monotonic() + PATIENCE_S
    while (gone := _check(conn)) <= seen < ROWS * len(RIDS):
        assert time.monotonic() < deadline, f"it does not go on after {seen}"
        time.sleep(0.05)
    return gone


@pytest.mark.parametrize("kills_max", [2, pytest.param(12, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "dialect", ["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.long])]
)
def test_after_every_kill_the_purge_vector_is_exact_and_the_trimming_goes_on(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    killed_service: ServiceProcess,
    dialect: str,
    kills_max: int,
) -> None:
    service, rng = killed_service, random.Random(11)
    with service.http() as http:
        if dialect == "sqlite":
            store = make_replica(http, rid=1, folder=tmp_path)
            target = Target(f"sqlite:///{store.path}", table_prefix="replica_")
        else:
            url = request.getfixturevalue("postgresql_url")
            store = make_replica(http, rid=1, url=url)
            target = postgresql_target(url)
        change = {"database": "ZGI=", "key": "a2V5", "value": "dg=="}
        assert http.post(f"/v1/stores/{store.id}/changes", json=change).status_code == 200
    with opened(target) as conn:
        with conn.transaction():
            put_records(conn, [(csn, OLD_S) for rid in RIDS for csn in _csns(rid)])
        body = {
            "kind": "CHANGELOG",
            "retention_minutes": 60,
            "max_rows_in_tx": 25,
            "throttle": {"rows_per_s": 400},
            "archive": {"format": "PARQUET"},
        }
        with service.http() as http:
            job_id = accepted(http.post(f"/v1/stores/{store.id}/purges", json=body))
        kills, seen = 0, 0
        while kills < kills_max and _goes_on(conn, seen) < ROWS * len(RIDS):
            time.sleep(rng.uniform(0, 0.3))
            service.kill9()
            seen = _check(conn)
            kills += 1
            service.start()
        assert kills >= 2, "it ended too soon"
        with service.http() as http:
            job = wait_for(http, job_id, timeout_s=PATIENCE_S)
        assert job["state"] == "SUCCEEDED", job
        assert _check(conn) == ROWS * len(RIDS)
        assert vectors(conn)[2] == {rid: _csns(rid)[-1] for rid in RIDS}
        result = job["result"]
        assert (result["counts"], result["removed"]) == ("EXACT", {"changelog": ROWS * len(RIDS)})
        assert result["archive"]["rows"] == ROWS * len(RIDS)
        removed = {each["rid"]: each["rows_removed"] for each in result["rids"]}
        assert removed == {1: 0} | dict.fromkeys(RIDS, ROWS)
