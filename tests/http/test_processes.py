"""Processes that may not start, and one that stops while clients wait and a job runs."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy.engine import make_url

from tests.http.events import listed, stream
from tests.http.service_process import ServiceProcess, run_to_end
from tests.http.shop import Shop, wait_for
from tests.http.targets import REMOVED_3X, copy_reference
from tests.ports import free_port

EXIT_BUSY = 75
EXIT_CONFIGURATION = 78
STOP_MAX_S = 15.0
MARGIN_S = 1.0


def test_second_process_on_a_data_directory_is_turned_away(sqlite_service: ServiceProcess) -> None:
    port = str(free_port())
    run = run_to_end(["serve", "--data-dir", str(sqlite_service.data_dir), "--port", port])
    assert run.returncode == EXIT_BUSY, run.stderr
    assert run.stderr.rstrip().endswith("; use that one, or choose another --data-dir")
    assert "Traceback" not in run.stderr
    with sqlite_service.http() as http:
        assert http.get("/readyz").status_code == 200


@pytest.mark.parametrize(
    "options",
    [
        ["--host", "0.0.0.0"],
        ["--host", "::", "--tls-key", "key.pem"],
    ],
    ids=" ".join,
)
def test_address_that_others_reach_needs_tls_or_a_proxy(tmp_path: Path, options: list[str]) -> None:
    run = run_to_end(["serve", "--data-dir", str(tmp_path / "data"), "--port", str(free_port()), *options])
    assert run.returncode == EXIT_CONFIGURATION, run.stderr
    assert "--tls-cert" in run.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("master", ["nonsense://here", "spark://host", "local[0]"])
def test_text_that_is_no_master_of_spark_is_a_configuration_error(tmp_path: Path, master: str) -> None:
    arguments = ["--data-dir", str(tmp_path / "data"), "--port", str(free_port())]
    run = run_to_end(["serve", *arguments], settings={"LETHE_SPARK__MASTER": master})
    assert run.returncode == EXIT_CONFIGURATION, run.stderr
    assert "spark.master" in run.stderr
    assert "spark://host:" in run.stderr
    assert not (tmp_path / "data").exists()


def test_postgresql_metadata_that_is_not_at_head_is_left_alone(tmp_path: Path, postgresql_url: str) -> None:
    arguments = ["--data-dir", str(tmp_path / "data"), "--metadata-url", postgresql_url]
    run = run_to_end(["serve", *arguments, "--port", str(free_port())])
    assert run.returncode == EXIT_CONFIGURATION, run.stderr
    assert "lethe migrate" in run.stderr


def test_metadata_of_a_newer_lethe_is_left_alone(tmp_path: Path, postgresql_url: str) -> None:
    arguments = ["--data-dir", str(tmp_path / "data"), "--metadata-url", postgresql_url]
    conninfo = make_url(postgresql_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, autocommit=True) as metadata:
        metadata.execute("create table alembic_version (version_num varchar(32) not null)")
        metadata.execute("insert into alembic_version values ('9999')")
    run = run_to_end(["serve", "--migrate", "--port", str(free_port()), *arguments])
    assert run.returncode == EXIT_CONFIGURATION, run.stderr
    assert "newer" in run.stderr


def _watch_readiness(service: ServiceProcess, seen: list[int], ended: threading.Event) -> None:
    with service.http("") as http:
        while not ended.is_set():
            try:
                seen.append(http.get("/readyz").status_code)
            except httpx.TransportError:
                return
            time.sleep(0.002)


def _poll_once(service: ServiceProcess, job_id: str) -> int:
    with service.http() as http:
        return http.get(f"/v1/jobs/{job_id}", headers={"Prefer": "wait=50"}).status_code


def _stream_to_its_end(service: ServiceProcess, job_id: str) -> list[int]:
    with service.http() as http:
        return [event.id for event in stream(http, job_id)]


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_stop_answers_who_waits_and_the_job_goes_on_after_the_next_start(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgresql_url") if kind == "postgresql" else None
    service = ServiceProcess(tmp_path, metadata_url=url).start()
    path = copy_reference(tmp_path / "shop.sqlite")
    try:
        with service.http() as http:
            body = {"id": "shop", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
            assert http.post("/v1/stores", json=body).status_code == 201
            shop = Shop(http=http, id="shop", path=path)
            job_id = shop.slow_purge(rows_per_s=50, archive={"format": "PARQUET"})
            wait_for(http, job_id, "RUNNING")
            time.sleep(0.7)
        _stop_under_load(service, job_id)
        service.start()
        with service.http() as http:
            http.patch(f"/v1/jobs/{job_id}/throttle", json={})
            job = wait_for(http, job_id)
            assert job["state"] == "SUCCEEDED", job["error"]
            assert job["result"]["removed"] == REMOVED_3X
            assert job["crash_count"] == 0
            assert job["attempt"] >= 2
            sequences = [event["seq"] for event in listed(http, job_id)]
            assert sequences == list(range(1, len(sequences) + 1))
        assert service.stop() == 0
        assert service.traces() == []
    finally:
        service.kill9()


def _stop_under_load(service: ServiceProcess, job_id: str) -> None:
    """SIGTERM while twenty long polls and twenty streams wait; all are answered, in time."""
    seen: list[int] = []
    ended = threading.Event()
    deadline = time.monotonic() + STOP_MAX_S
    with ThreadPoolExecutor(41) as pool:
        polls = [pool.submit(_poll_once, service, job_id) for _ in range(20)]
        streams = [pool.submit(_stream_to_its_end, service, job_id) for _ in range(20)]
        time.sleep(1.0)
        pool.submit(_watch_readiness, service, seen, ended)
        while not seen and time.monotonic() < deadline:
            time.sleep(0.02)
        started = time.monotonic()
        service.begin_stop()
        code = service.wait_exit()
        elapsed = time.monotonic() - started
        ended.set()
        assert code == 0
        assert elapsed < STOP_MAX_S + MARGIN_S
        assert [future.result() for future in polls] == [200] * 20
        for future in streams:
            sequences = future.result()
            assert sequences == list(range(1, len(sequences) + 1))
    print(f"\nstopped in {elapsed:.2f} s; /readyz said {sorted(set(seen))}")
    assert seen[0] == 200
    assert 503 in seen
    assert 200 not in seen[seen.index(503) :]


def test_job_that_waits_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path).start()
    path = copy_reference(tmp_path / "shop.sqlite")
    with service.http() as http:
        body = {"id": "shop", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
        http.post("/v1/stores", json=body)
        http.post("/v1/stores/shop:suspend", json={"reason": "r"})
        answer = Shop(http=http, id="shop", path=path).purge()
        wait_for(http, answer.json()["id"], "WAITING", timeout_s=10)
    started = time.monotonic()
    assert service.stop() == 0
    assert time.monotonic() - started < 5
    lines = [json.loads(line) for line in service.log().splitlines() if line.startswith("{")]
    told = [line for line in lines if line.get("job_id") == answer.json()["id"]]
    assert [line["event"] for line in told] == ["job submitted", "job started", "job waits"]
    assert {(line["store"], line["kind"], line["caller"]) for line in told} == {("shop", "PURGE", "admin")}
    assert told[-1]["waiting_on"] == ["STORE_SUSPENDED shop"]
    ends = [line for line in lines if line["event"] in ("stopping", "stopped")]
    assert [(line["event"], line.get("signal"), line.get("exit_code")) for line in ends] == [
        ("stopping", "SIGTERM", None),
        ("stopped", None, 0),
    ]
