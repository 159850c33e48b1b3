"""kill -9 of the service while rows go, beside a writer: what is gone is archived, each row exactly once."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from spark.targets.archive.archive import read_manifest_json, read_rows
from spark.targets.connection import Connection, SessionLimits, Target, connect
from spark.targets.errors import TargetError
from spark.targets.fence import raise_fence
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for

ROWS = 600
PATIENCE_S = 90.0


@pytest.fixture
def killed_service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service of the test's own, which dies and comes back."""
    settings = {
        "LETHE_JOB_RETRY_BACKOFF_MAX_S": "1",
        "LETHE_CRASH_LOOP_MAX": "100",
        "LETHE_SPARK__ENABLED": "false",
    }
    service = ServiceProcess(tmp_path / "service", settings=settings).start()
    yield service
    service.kill9()


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.postgresql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ]
)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """A table of events with six hundred old rows; readings refer to some of them."""
    if request.param == "sqlite":
        (tmp_path / "events.db").touch()
        url = f"sqlite:///{tmp_path / 'events.db'}"
    else:
        url = str(request.getfixturevalue(f"{request.param}_url"))
    found = Target(url, table_prefix="")
    with closing(connect(found, application_name="made")) as conn:
        conn.execute("create table event (id integer primary key, at timestamp null, n integer)")
        conn.execute(
            "create table reading (id integer primary key, event integer,"
            " foreign key (event) references event (id))"
        )
        rows = ", ".join(f"({n}, '2020-01-01 00:00:00', {n})" for n in range(ROWS))
        conn.execute(f"insert into event values {rows}")
    return found


class Writer:
    """Makes readings of old events and young events, as long as it is let."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.referred: set[int] = set()

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _write(self) -> None:
        rng, number = random.Random(5), 10_000
        limits = SessionLimits(lock_timeout_ms=2_000)
        with closing(connect(self._target, application_name="writer", limits=limits)) as conn:
            if conn.dialect.name == "sqlite":
                conn.execute("pragma foreign_keys = on")
            while not self._stop.wait(0.03):
                number += 1
                event = rng.randrange(ROWS)
                with suppress(TargetError):  # the event is gone, or locked for too long
                    conn.execute("insert into reading values (:id, :event)", {"id": number, "event": event})
                    self.referred.add(event)
                with suppress(TargetError):
                    conn.execute(f"insert into event values ({number}, '2037-01-01 00:00:00', {number})")


def _left(conn: Connection) -> set[int]:
    return {int(n) for (n,) in conn.execute("select id from event where id < 10000")}


def _archived(directory: Path) -> Counter[int]:
    return Counter(int(row[0]) for entry in read_manifest_json(directory) for row in read_rows(entry.path))


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.long)])
def test_after_every_kill_what_is_gone_is_archived_once_and_what_is_referred_to_stays(
    target: Target, killed_service: ServiceProcess, kills: int
) -> None:
    service, rng = killed_service, random.Random(3)
    body = {
        "kind": "ROWS",
        "table": "event",
        "time_column": "at",
        "older_than": "P1D",
        "archive": {"format": "PARQUET"},
        "max_rows_in_tx": 20,
        "max_rows_per_s": 250 if kills == 2 else 60,
    }
    with closing(connect(target, application_name="looks")) as conn, Writer(target) as writer:
        with service.http() as http:
            assert (
                http.post("/v1/stores", json={"id": "s", "kind": "SQL", "url": target.url}).status_code == 201
            )
            job_id = accepted(http.post("/v1/stores/s/purges", json=body))
        seen = ROWS
        for _ in range(kills):
            deadline = time.monotonic() + PATIENCE_S
            while len(_left(conn)) >= seen:
                assert time.monotonic() < deadline, "it does not go on"
                time.sleep(0.02)
            time.sleep(rng.uniform(0, 0.2))
            service.kill9()
            seen = len(_left(conn))
            service.start()
        with service.http() as http:
            job = wait_for(http, job_id, timeout_s=PATIENCE_S)
        assert job["state"] == "SUCCEEDED", job
        left = _left(conn)
        result = job["result"]
        assert _archived(Path(result["archive"]["directory"])) == Counter(set(range(ROWS)) - left)
        assert result["removed"] == {"event": ROWS - len(left)}
        assert job["progress"]["removed"] == ROWS - len(left)
        assert job["progress"]["total"] == job["progress"]["done"] >= ROWS, "over all attempts"
    with closing(connect(target, application_name="looks")) as conn:
        orphans = conn.execute("select count(*) from reading where event not in (select id from event)")
        assert orphans == [(0,)]
        assert left <= writer.referred


@pytest.mark.parametrize("target", ["sqlite"], indirect=True)
def test_a_fence_that_somebody_else_raised_ends_the_purge(
    target: Target, killed_service: ServiceProcess
) -> None:
    body = {"kind": "ROWS", "table": "event", "where": "n >= 0", "max_rows_in_tx": 10, "max_rows_per_s": 40}
    with closing(connect(target, application_name="looks")) as conn, killed_service.http() as http:
        assert http.post("/v1/stores", json={"id": "s", "kind": "SQL", "url": target.url}).status_code == 201
        job_id = accepted(http.post("/v1/stores/s/purges", json=body))
        deadline = time.monotonic() + PATIENCE_S
        while len(_left(conn)) == ROWS:
            assert time.monotonic() < deadline, "it does not begin"
            time.sleep(0.02)
        with suppress(TargetError):
            raise_fence(conn, "public.rows", token=10**9, owner="another metadata")
        job = wait_for(http, job_id)
        assert (job["state"], job["error"]["code"]) == ("FAILED", "EPOCH_AHEAD"), job
        assert len(_left(conn)) > 0
        answer = http.post("/v1/stores/s/purges", json=body)
        assert answer.json()["code"] == "EPOCH_AHEAD", answer.text
        recovered = http.post("/v1/stores/s:recover", json={})
        assert recovered.status_code == 200, recovered.text
        done = wait_for(http, accepted(http.post("/v1/stores/s/purges", json=body | {"max_rows_per_s": 1e6})))
        assert done["state"] == "SUCCEEDED", done
        assert _left(conn) == set()
