"""What every answer carries, and what errors look like wherever they come from."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

import httpx
import pytest

from tests.http.problem import pointers, problem
from tests.http.service_process import ROOT, ServiceProcess
from tests.http.shop import Shop

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"


def _log_lines(service: ServiceProcess, request_id: str) -> list[dict[str, Any]]:
    """Log lines of one request; the last is written just after the answer has left."""
    for _ in range(50):
        lines = [line for line in service.log().splitlines() if request_id in line]
        if lines:
            return [json.loads(line) for line in lines]
        time.sleep(0.05)
    return []


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v2/jobs", "/v1/job", "/docs", "/redoc"])
def test_unknown_path_is_not_found(http: httpx.Client, path: str) -> None:
    problem(http.get(path), 404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/jobs"),
        ("DELETE", "/v1/jobs"),
        ("GET", "/v1/jobs:batch"),
        ("POST", "/livez"),
        ("PATCH", "/v1/tokens"),
    ],
)
def test_method_that_a_path_does_not_have_is_refused(http: httpx.Client, method: str, path: str) -> None:
    answer = http.request(method, path)
    problem(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"]


def test_validation_names_body_query_and_header_fields(http: httpx.Client, shop: Shop) -> None:
    found = problem(http.get("/v1/jobs?page_size=x&state=DONE"), 422, "INVALID_REQUEST")
    assert pointers(found) == {"query:page_size", "query:state.0"}
    answer = http.post(
        f"/v1/stores/{shop.id}/purges", json={"kind": "OUTGOING", "throttle": {"rows_per_s": -1}}
    )
    assert pointers(problem(answer, 422, "INVALID_REQUEST")) == {"/throttle/rows_per_s"}


def test_given_request_id_comes_back_and_stands_in_the_log(
    http: httpx.Client, service: ServiceProcess
) -> None:
    headers = {
        "X-Request-ID": f"mine-{time.monotonic_ns()}",
        "traceparent": f"00-{TRACE_ID}-00f067aa0ba902b7-01",
    }
    answer = http.get("/v1/stores/none", headers=headers)
    assert answer.headers["x-request-id"] == headers["X-Request-ID"]
    lines = _log_lines(service, headers["X-Request-ID"])
    assert [
        (line["status"], line["path"], line["trace_id"]) for line in lines if line["event"] == "request"
    ] == [(404, "/v1/stores/none", TRACE_ID)]


@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "é", '"><script>'])
def test_request_id_out_of_its_grammar_is_replaced(service: ServiceProcess, given: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)
    connection.request("GET", "/livez", headers={"X-Request-ID": given.encode("latin-1")})
    answer = connection.getresponse()
    assert str(answer.getheader("x-request-id")).startswith("req_")
    answer.read()
    connection.close()


@pytest.mark.parametrize("given", ["", "garbage", "00-xyz-1-01", "ff"])
def test_broken_traceparent_is_ignored(http: httpx.Client, given: str) -> None:
    assert http.get("/v1/jobs", headers={"traceparent": given}).status_code == 200


def test_request_id_stands_in_the_audit_row(http: httpx.Client, shop: Shop) -> None:
    request_id = f"audited-{time.monotonic_ns()}"
    body = {"reason": "test", "duration": "PT1M"}
    http.post(f"/v1/stores/{shop.id}:suspend", json=body, headers={"X-Request-ID": request_id})
    rows = http.get("/v1/audit-events", params={"subject_id": shop.id}).json()["items"]
    assert [row["action"] for row in rows] == ["store.suspend", "store.create"]
    assert rows[0]["request_id"] == request_id


def test_refused_request_leaves_no_audit_row(http: httpx.Client, shop: Shop) -> None:
    problem(http.patch(f"/v1/stores/{shop.id}", json={"time_zone": "UTC"}), 428, "PRECONDITION_MISSING")
    rows = http.get("/v1/audit-events", params={"subject_id": shop.id}).json()["items"]
    assert [row["action"] for row in rows] == ["store.create"]


def test_origin_of_a_browser_gets_no_permission_by_default(http: httpx.Client) -> None:
    origin = {"Origin": "https://evil.example"}
    answer = http.get("/v1/jobs", headers=origin)
    assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = http.options("/v1/jobs", headers=origin | {"Access-Control-Request-Method": "POST"})
    assert preflight.status_code == 405
    assert not [name for name in preflight.headers if name.startswith("access-control")]


def test_answer_names_no_server_software(http: httpx.Client) -> None:
    assert "server" not in http.get("/livez").headers


def test_served_description_is_the_committed_one(http: httpx.Client) -> None:
    committed = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    assert http.get("/openapi.json").json() == committed


def test_broken_http_does_not_end_the_service(service: ServiceProcess, http: httpx.Client) -> None:
    connection = http_raw(service, b"GARBAGE\r\n\r\n")
    assert b"500" not in connection
    assert b"Traceback" not in connection
    half = b"POST /v1/stores HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
    http_raw(service, half, read=False)
    assert http.get("/v1/jobs").status_code == 200


def http_raw(service: ServiceProcess, content: bytes, *, read: bool = True) -> bytes:
    """Send bytes, read what comes back if asked to, and hang up."""
    import socket

    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
        connection.sendall(content)
        return connection.recv(4096) if read else b""
