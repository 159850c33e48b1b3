"""Requests that are refused: in the audit, slowed, and nobody else suffers from them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess

DEADLINE_S = 60.0
SECRET = "lethe_this-was-pasted-by-mistake-0123456789"
Start = Callable[..., ServiceProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[ServiceProcess] = []

    def start_one(**settings: str) -> ServiceProcess:
        given = {"LETHE_SPARK__ENABLED": "false", "LETHE_REFUSALS_WRITTEN_S": "0.3"} | settings
        process = ServiceProcess(tmp_path / f"service{len(started)}", settings=given)
        started.append(process)
        return process.start()

    yield start_one
    for process in started:
        process.stop()


def _refusals(http: httpx.Client, count: int) -> list[dict[str, object]]:
    """The audit rows of refusals, once they tell of so many."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        rows = http.get("/v1/audit-events", params={"action": "login.refuse"}).json()["items"]
        if sum(row["detail"]["count"] for row in rows) >= count:
            return list(rows)
        assert time.monotonic() < deadline, rows
        time.sleep(0.05)


def test_refusals_are_in_the_audit_and_secrets_nowhere(start: Start) -> None:
    service = start()
    with service.http() as http, service.http(SECRET) as stranger:
        viewer = http.post("/v1/tokens", json={"name": "curious", "role": "viewer"}).json()
        for _ in range(20):
            problem(stranger.get("/v1/jobs"), 401, "TOKEN_UNKNOWN")
        with service.http(viewer["token"]) as curious:
            for _ in range(3):
                problem(curious.get("/v1/tokens"), 403, "SCOPE_MISSING")
        rows = _refusals(http, 23)
        named = [row for row in rows if row["token_id"] == viewer["id"]]
        assert {row["actor"] for row in named} == {"curious"}
        assert named[0]["detail"]["operations"] == ["GET /v1/tokens"]  # type: ignore[index]
        assert {row["subject_id"] for row in rows} == {"127.0.0.1"}
        assert len(rows) < 23
    service.stop()
    for path in [service.log_file, *service.data_dir.glob("lethe.db*")]:
        assert SECRET.encode() not in path.read_bytes(), path


def test_refusals_wait_and_others_do_not(start: Start) -> None:
    service = start(LETHE_REFUSAL_DELAY_MAX_S="10")
    order: list[str] = []

    def ask() -> None:
        with service.http("lethe_wrong") as stranger:
            problem(stranger.get("/v1/jobs"), 401, "TOKEN_UNKNOWN")
        order.append("refused")

    with service.http("lethe_wrong") as stranger, service.http() as http:
        for _ in range(51):
            stranger.get("/v1/jobs")
        strangers = [threading.Thread(target=ask) for _ in range(12)]
        began = time.monotonic()
        for thread in strangers:
            thread.start()
        for _ in range(5):
            assert http.get("/v1/jobs").status_code == 200
        order.append("answered")
        for thread in strangers:
            thread.join()
        assert time.monotonic() - began > 0.3
    assert order.index("answered") < len(order) - 1


def test_who_holds_a_token_is_not_locked_out_by_his_neighbour(start: Start) -> None:
    service = start(LETHE_ADDRESS_FAILURES_BURST="5", LETHE_ADDRESS_FAILURES_PER_S="0.001")
    with service.http() as http:
        token = http.post("/v1/tokens", json={"name": "new", "role": "viewer"}).json()["token"]
        with service.http("lethe_wrong") as stranger:
            answers = [stranger.get("/v1/jobs").status_code for _ in range(20)]
        assert set(answers) == {401, 429}
        assert answers[-1] == 429
        with service.http(token) as new:  # from the same address, and never seen before
            assert new.get("/v1/jobs").status_code == 200
        late = http.post("/v1/tokens", json={"name": "late", "role": "viewer"}).json()["token"]
        deadline = time.monotonic() + DEADLINE_S
        with service.http(late) as client:
            while client.get("/v1/jobs").status_code != 200:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        rows = _refusals(http, 20)
        codes = {code for row in rows for code in row["detail"]["codes"]}  # type: ignore[index]
        assert codes == {"TOKEN_UNKNOWN", "TOO_MANY_REQUESTS"}


BEHIND = {"LETHE_BEHIND_PROXY": "true", "LETHE_PROXY_ADDRESSES": "127.0.0.1"}
REAL = "192.0.2.7"


def test_lies_before_the_word_of_the_proxy_make_no_new_address(start: Start) -> None:
    """Who writes an X-Forwarded-For himself is known by what the proxy adds to it."""
    service = start(**BEHIND)
    with service.http() as http, service.http(SECRET) as liar:
        for number in range(20):
            lies = f"198.51.100.{number}, 127.0.0.1, {REAL}"
            problem(liar.get("/v1/jobs", headers={"X-Forwarded-For": lies}), 401, "TOKEN_UNKNOWN")
        rows = _refusals(http, 20)
        assert {row["subject_id"] for row in rows} == {REAL}


def test_what_is_no_address_is_one_stranger_and_its_text_nowhere(start: Start) -> None:
    """A proxy that hands on what it is given: each text was an address of its own, and stood in the audit."""
    service = start(**BEHIND)
    with service.http() as http, service.http(SECRET) as liar:
        for number in range(20):
            lie = {"X-Forwarded-For": f"<b>pasted {SECRET} {number}</b>"}
            problem(liar.get("/v1/jobs", headers=lie), 401, "TOKEN_UNKNOWN")
        rows = _refusals(http, 20)
        assert {row["subject_id"] for row in rows} == {"unknown"}
        assert SECRET not in str(rows)
    service.stop()
    assert "pasted" not in service.log()


def test_word_of_who_is_no_trusted_proxy_is_not_taken(start: Start) -> None:
    service = start(**BEHIND | {"LETHE_PROXY_ADDRESSES": "192.0.2.1"})
    with service.http() as http, service.http(SECRET) as liar:
        for number in range(5):
            lie = {"X-Forwarded-For": f"198.51.100.{number}"}
            problem(liar.get("/v1/jobs", headers=lie), 401, "TOKEN_UNKNOWN")
        assert {row["subject_id"] for row in _refusals(http, 5)} == {"127.0.0.1"}
