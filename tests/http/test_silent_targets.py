"""Plans against a server that takes the connection and says nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import wait_for
from tests.http.slony_nodes import new_name

CONNECT_S, AWAY_S = "1", "1"


@contextmanager
def swallowing() -> Iterator[int]:
    """A port that takes every connection, reads what comes, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        kept: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    kept.append(server.accept()[0])
                except OSError:
                    return

        taker = threading.Thread(target=take, daemon=True)
        taker.start()
        yield int(server.getsockname()[1])
        server.shutdown(socket.SHUT_RDWR)
    taker.join(10)
    for each in kept:
        each.close()


@pytest.fixture(scope="module")
def silent_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    settings = {"LETHE_TARGET_CONNECT_TIMEOUT_S": CONNECT_S, "LETHE_PLAN_AWAY_MAX_S": AWAY_S}
    service = ServiceProcess(tmp_path_factory.mktemp("silent"), settings=settings).start()
    yield service
    service.stop()


@pytest.fixture
def http(silent_service: ServiceProcess) -> Iterator[httpx.Client]:
    with silent_service.http() as client:
        yield client


KINDS: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "postgresql": (
        {"kind": "SYMMETRICDS", "url": "postgresql+psycopg://nobody@127.0.0.1:{port}/shop"},
        "purges",
        {"kind": "OUTGOING", "stranded": "MARK"},
    ),
    "mariadb": (
        {"kind": "SYMMETRICDS", "url": "mysql+pymysql://nobody@127.0.0.1:{port}/shop"},
        "purges",
        {"kind": "OUTGOING", "stranded": "MARK"},
    ),
    "slony": (
        {"kind": "SLONY", "cluster": "lab", "url": "postgresql+psycopg://nobody@127.0.0.1:{port}/node"},
        "event-cleanups",
        {},
    ),
}


def plan(http: httpx.Client, kind: str, port: int, *, wait_s: int) -> httpx.Response:
    """The answer for a plan of a new store behind the port."""
    store, path, body = KINDS[kind]
    store = store | {"id": new_name(kind), "url": store["url"].format(port=port)}
    assert (created := http.post("/v1/stores", json=store)).status_code == 201, created.text
    return http.post(
        f"/v1/stores/{store['id']}/{path}",
        params={"validate_only": "true"},
        json=body,
        headers={"Prefer": f"wait={wait_s}"},
    )


def test_plans_of_silent_targets_show_life_and_end(http: httpx.Client) -> None:
    """Before: WAITING for a quarter of an hour, and a 503 without Retry-After."""
    with swallowing() as port:
        *queued, waited = (plan(http, kind, port, wait_s=25 * (kind == "slony")) for kind in KINDS)
        for answer in queued:
            assert answer.status_code == 202, answer.text
            assert_ended(http, answer.headers["location"].rpartition("/")[2])
        assert "plan again" in problem(waited, 503, "TARGET_UNREACHABLE")["detail"]


def assert_ended(http: httpx.Client, job_id: str) -> None:
    """A job has waited for its target, and has failed with what to do next."""
    job = wait_for(http, job_id)
    assert (job["state"], job["error"]["code"]) == ("FAILED", "TARGET_UNREACHABLE")
    assert job["error"]["retryable"]
    assert "plan again" in job["error"]["detail"]
    events = http.get(f"/v1/jobs/{job_id}/events").json()["items"]
    waits = [event["data"]["waiting_on"] for event in events if event["data"].get("waiting_on")]
    assert [wait[0]["kind"] for wait in waits[:1]] == ["TARGET_UNREACHABLE"]
