"""`--api-processes`: several processes answer on one port, and are one service to whoever asks."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.conftest import SharedServer
from tests.http.service_process import NO_TLS, ServiceProcess, run_to_end
from tests.http.shop import Shop, wait_for
from tests.http.targets import REMOVED_3X, copy_reference
from tests.ports import free_port

pytestmark = pytest.mark.postgresql
PROCESSES = 2
FAILURES = 60
AT_ONCE = 8
CONNECTIONS = 40
WAIT_S = 20.0
STOP_MAX_S = 15.0
MARGIN_S = 1.0


def test_sqlite_is_refused_with_what_to_do(tmp_path: Path) -> None:
    options = ["--data-dir", str(tmp_path / "data"), "--port", str(free_port()), "--api-processes", "2"]
    run = run_to_end(["serve", *options])
    assert run.returncode == 78, run.stderr
    assert "--api-processes needs PostgreSQL metadata (--metadata-url)" in run.stderr
    assert not (tmp_path / "data").exists()


def started(directory: Path, url: str) -> ServiceProcess:
    settings = {
        "LETHE_API_PROCESSES": str(PROCESSES),
        "LETHE_ADDRESS_FAILURES_BURST": str(FAILURES),
        "LETHE_ADDRESS_FAILURES_PER_S": "0.01",
        "LETHE_REFUSALS_WRITTEN_S": "0.5",
    }
    return ServiceProcess(directory, metadata_url=url, settings=settings).start()


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, postgresql_server: SharedServer
) -> Iterator[ServiceProcess]:
    postgresql_server.execute("create database lethe_crew")
    process = started(tmp_path_factory.mktemp("crew"), postgresql_server.url("lethe_crew"))
    try:
        wait_until(lambda: len(children(process.pid)) == PROCESSES)
        yield process
        assert process.stop() == 0
        assert process.traces() == []
    finally:
        process.kill9()
        postgresql_server.execute("drop database if exists lethe_crew with (force)")


def wait_until(is_so: object) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    """The API processes of a service, which a process between has forked."""
    found: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                found[int(entry.name)] = parent, (entry / "comm").read_text().strip()
    return sorted(
        child
        for child, (parent, name) in found.items()
        if name.startswith("lethe-api-") and found.get(parent, (0, ""))[0] == pid
    )


def get(service: ServiceProcess, path: str, *, token: str | None = None, **options: object) -> httpx.Response:
    """By a connection of its own: whichever process is free takes it."""
    headers = {"Authorization": f"Bearer {token or service.token}"}
    return httpx.get(f"{service.url}{path}", headers=headers, timeout=30, verify=NO_TLS, **options)  # type: ignore[arg-type]


def asked(service: ServiceProcess, path: str, count: int, *, token: str | None = None) -> list[int]:
    """The answers to so many requests, several at once, each by a connection of its own."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda _: get(service, path, token=token).status_code, range(count)))


def figures(service: ServiceProcess) -> dict[str, float]:
    lines = [line for line in get(service, "/metrics").text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def requests_of(found: dict[str, float], route: str) -> float:
    return sum(
        value
        for name, value in found.items()
        if name.startswith("lethe_http_requests_total") and f'route="{route}"' in name
    )


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sockets_of(pid: int) -> int:
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            names.append(os.readlink(entry))
    return sum(name.startswith("socket:") for name in names)


def test_all_of_them_answer_and_figures_are_of_all(service: ServiceProcess) -> None:
    pids = children(service.pid)
    before = requests_of(figures(service), "/v1/stores")
    spent = [processor_s(pid) for pid in pids]
    assert set(asked(service, "/v1/stores", 120)) == {200}
    assert all(processor_s(pid) > former for pid, former in zip(pids, spent, strict=True))
    wait_until(lambda: requests_of(figures(service), "/v1/stores") == before + 120)
    found = figures(service)
    assert found["lethe_api_processes"] == PROCESSES
    assert found["lethe_instances_alive"] == 1
    assert found['lethe_change_feeds_open{form="SSE"}'] == 0
    assert requests_of(found, "/metrics") > 0
    duration = 'lethe_http_request_duration_seconds_count{method="GET",route="/v1/stores"}'
    assert found[duration] == before + 120


def test_connections_that_stay_are_shared_evenly(service: ServiceProcess) -> None:
    pids = children(service.pid)
    with ExitStack() as stack:
        before = [sockets_of(pid) for pid in pids]
        for _ in range(CONNECTIONS):
            client = stack.enter_context(service.http())
            assert client.get("/livez").status_code == 200
        found = [sockets_of(pid) - former for pid, former in zip(pids, before, strict=True)]
    assert sum(found) >= CONNECTIONS, found
    assert min(found) >= CONNECTIONS // 4, found


def test_what_the_first_process_knows_is_told_by_all(service: ServiceProcess) -> None:
    assert set(asked(service, "/readyz", 20)) == {200}
    pools = [get(service, "/v1/spark-pool") for _ in range(10)]
    assert len({answer.json()["instance"] for answer in pools}) == 1, pools[0].text
    head = pools[0].headers
    assert head["content-length"] == str(len(pools[0].content))
    with service.http() as http:
        drained = http.post("/v1/spark-pool:drain", json={"reason": "r"})
        assert drained.status_code == 200, drained.text
        refused = http.post("/v1/spark-pool:resume", json={"reason": "r", "more": 1})
        assert (refused.status_code, refused.json()["code"]) == (422, "INVALID_REQUEST")
        assert http.post("/v1/spark-pool:resume", json={"reason": "r"}).status_code == 200
    stranger = httpx.get(f"{service.url}/metrics", verify=NO_TLS)
    assert (stranger.status_code, stranger.json()["code"]) == (401, "TOKEN_MISSING")
    assert "x-request-id" in stranger.headers


def test_socket_of_the_first_process_is_for_nobody_else(service: ServiceProcess) -> None:
    assert (service.data_dir / "first.sock").stat().st_mode & 0o077 == 0


def test_token_that_was_revoked_is_refused_by_all(service: ServiceProcess) -> None:
    with service.http() as http:
        made = http.post("/v1/tokens", json={"name": "brief", "role": "viewer"}).json()
        assert set(asked(service, "/v1/stores", 24, token=made["token"])) == {200}
        assert http.post(f"/v1/tokens/{made['id']}:revoke", json={"reason": "r"}).status_code == 200
    assert set(asked(service, "/v1/stores", 24, token=made["token"])) == {401}


def test_who_waits_at_one_hears_what_the_first_process_does(service: ServiceProcess, tmp_path: Path) -> None:
    path = copy_reference(tmp_path / "shop.sqlite")
    with service.http() as http:
        body = {"id": "shop", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
        assert http.post("/v1/stores", json=body).status_code == 201
        job_id = Shop(http=http, id="shop", path=path).purge().json()["id"]
        job = wait_for(http, job_id)
    assert (job["state"], job["result"]["removed"]) == ("SUCCEEDED", REMOVED_3X)
    with ThreadPoolExecutor(6) as pool:
        waits = {"headers": {"Authorization": f"Bearer {service.token}", "Prefer": "wait=20"}}
        urls = [f"{service.url}/v1/jobs/{job_id}"] * 6
        seen = list(pool.map(lambda url: httpx.get(url, timeout=30, verify=NO_TLS, **waits), urls))  # type: ignore[arg-type]
    assert {answer.json()["state"] for answer in seen} == {"SUCCEEDED"}


def test_killed_process_is_replaced_and_the_service_goes_on(service: ServiceProcess) -> None:
    before = figures(service)
    victim, survivor = children(service.pid)
    os.kill(victim, signal.SIGKILL)
    assert set(asked(service, "/v1/stores", 40)) == {200}
    wait_until(lambda: len(children(service.pid)) == PROCESSES and victim not in children(service.pid))
    assert survivor in children(service.pid)
    spent = {pid: processor_s(pid) for pid in children(service.pid)}
    wait_until(lambda: figures(service)["lethe_api_process_restarts_total"] == 1)
    assert set(asked(service, "/v1/stores", 80)) == {200}
    assert all(processor_s(pid) > former for pid, former in spent.items())
    after = figures(service)
    sunk = {
        name: (value, after.get(name))
        for name, value in before.items()
        if name.startswith("lethe_http_") and "_created" not in name and after.get(name, 0.0) < value
    }
    assert sunk == {}
    assert set(asked(service, "/readyz", 20)) == {200}


def test_refused_logins_are_counted_together_and_audited(service: ServiceProcess) -> None:
    """Three buckets of processes that know nothing of each other would let in three times as many."""
    codes = asked(service, "/v1/stores", 3 * FAILURES, token="lethe_" + "x" * 40)
    # An answer is counted as it leaves: what is on its way with the last of them is answered too.
    assert codes.count(401) < FAILURES + AT_ONCE
    assert set(codes) == {401, 429}
    assert set(asked(service, "/v1/stores", 20)) == {200}  # whoever holds a token is not shut out

    def counted() -> int:
        rows = get(service, "/v1/audit-events?action=login.refuse").json()["items"]
        return sum(row["detail"]["count"] for row in rows)

    wait_until(lambda: counted() >= 3 * FAILURES)


def test_first_process_that_is_killed_takes_the_others_along(tmp_path: Path, postgresql_url: str) -> None:
    service = started(tmp_path, postgresql_url)
    try:
        wait_until(lambda: len(children(service.pid)) == PROCESSES)
        pids = children(service.pid)
        service.kill9()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
        service.start()  # on the same port and data directory
        _stop_of_the_group_drains(service, tmp_path)
    finally:
        service.kill9()


def _stop_of_the_group_drains(service: ServiceProcess, tmp_path: Path) -> None:
    """A supervisor sends SIGTERM to all: whoever waits is answered, the job gives itself back, all end."""
    path = copy_reference(tmp_path / "shop.sqlite")
    with service.http() as http:
        body = {"id": "shop", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
        assert http.post("/v1/stores", json=body).status_code == 201
        job_id = Shop(http=http, id="shop", path=path).slow_purge(rows_per_s=50)
        wait_for(http, job_id, "RUNNING")
    wait_until(lambda: len(children(service.pid)) == PROCESSES)
    pids = children(service.pid)
    headers = {"Authorization": f"Bearer {service.token}", "Prefer": "wait=50"}
    with ThreadPoolExecutor(16) as pool:
        url = f"{service.url}/v1/jobs/{job_id}"
        polls = [pool.submit(httpx.get, url, headers=headers, timeout=60, verify=NO_TLS) for _ in range(16)]
        time.sleep(1.0)
        began = time.monotonic()
        for pid in [*pids, service.pid]:
            os.kill(pid, signal.SIGTERM)
        assert [poll.result().status_code for poll in polls] == [200] * 16
        assert service.wait_exit() == 0
    assert time.monotonic() - began < STOP_MAX_S + MARGIN_S
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert service.traces() == []
