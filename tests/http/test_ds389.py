"""Stores of kind DS389 over HTTP and by the command: what they are, who is not asked, what was lost."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from app.cli.main import main
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess

SESSIONS = Path(__file__).parents[1] / "data" / "replication" / "sessions.jsonl.gz"
NOBODY = "ldap://127.0.0.1:9?tls=none"


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: a look is at the target."""
    return sqlite_service


@pytest.fixture
def suffix() -> str:
    return f"dc={uuid4().hex[:12]},dc=com"


@pytest.fixture
def http(service: ServiceProcess) -> Iterator[httpx.Client]:
    with service.http() as client:
        yield client


def body_of(of: str, /, **fields: Any) -> dict[str, Any]:
    name = f"d-{uuid4().hex[:12]}"
    usual = {"id": name, "kind": "DS389", "url": NOBODY, "suffix": of, "bind_dn": "cn=x,cn=config"}
    return usual | fields


def register(http: httpx.Client, suffix: str, **fields: Any) -> str:
    made = http.post("/v1/stores", json=body_of(suffix, **fields))
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def test_a_token_of_some_servers_leaves_the_figures_of_all(
    http: httpx.Client, service: ServiceProcess, make_token: Callable[..., str], suffix: str
) -> None:
    """What is missing or dangling is judged by all servers alone: half a look must not clear an alert."""
    one, _two = register(http, suffix), register(http, suffix)
    with service.http(make_token("stores:read", stores=[one])) as limited:
        found = limited.get("/v1/ds389/health", params={"suffix": suffix}).json()
        assert [each["store"] for each in found["servers"]] == [one]
        assert limited.get(f"/v1/stores/{one}/ds389-health").json()["status"] == "UNKNOWN"
    assert f'lethe_ds389_health{{store="{one}"}}' not in http.get("/metrics").text
    http.get("/v1/ds389/health", params={"suffix": suffix})
    assert f'lethe_ds389_health{{store="{one}"}} 3.0' in http.get("/metrics").text


@pytest.mark.parametrize(
    "fields",
    [
        {"url": "postgresql+psycopg://u@127.0.0.1/x"},
        {"url": "ldap://u:p@127.0.0.1"},
        {"url": "ldaps://127.0.0.1/dc=example"},
        {"url": "ldaps://127.0.0.1?tls=none"},
        {"url": "ldap://127.0.0.1?tls=maybe"},
        {"url": "ldaps://127.0.0.1?ca=relative.pem"},
        {"url": "ldaps://127.0.0.1?binddn=x"},
        {"url": "ldaps://one,two"},
        {"url": "ldaps://127.0.0.1?ca=/a&ca=/b"},
        {"suffix": None},
        {"bind_dn": None},
        {"bind_dn": "nobody"},
        {"cluster": "lab"},
        {"kind": "SQL", "suffix": None, "bind_dn": None},
        {"kind": "SYMMETRICDS", "suffix": None, "bind_dn": None},
    ],
)
def test_a_store_that_cannot_be_is_refused(http: httpx.Client, suffix: str, fields: dict[str, Any]) -> None:
    asked = body_of(suffix, **fields)
    problem(http.post("/v1/stores", json=asked), 422, "INVALID_REQUEST")
    assert http.get(f"/v1/stores/{asked['id']}").status_code == 404


def test_a_host_and_an_authority_that_are_not_allowed_are_refused(http: httpx.Client, suffix: str) -> None:
    far = body_of(suffix, url="ldaps://ldap.example")
    problem(http.post("/v1/stores", json=far), 422, "HOST_NOT_ALLOWED")
    ca = body_of(suffix, url="ldaps://127.0.0.1?ca=/etc/ssl/certs/ca-certificates.crt")
    problem(http.post("/v1/stores", json=ca), 422, "PATH_NOT_ALLOWED")


def test_servers_that_are_away_are_named_and_noted(http: httpx.Client, suffix: str) -> None:
    one, two = register(http, suffix), register(http, suffix.upper().replace(",", " , "))
    found = http.get("/v1/ds389/health", params={"suffix": suffix}).json()
    assert (found["status"], {each["store"] for each in found["servers"]}) == ("UNKNOWN", {one, two})
    assert {(each["code"], *each["servers"]) for each in found["findings"]} == {
        ("SERVER_AWAY", one),
        ("SERVER_AWAY", two),
    }
    alone = http.get(f"/v1/stores/{one}/ds389-health").json()
    assert [each["servers"] for each in alone["findings"]] == [[one]]
    assert [each["store"] for each in alone["servers"]] == [one]
    topology = http.get("/v1/ds389/topology", params={"suffix": suffix}).json()
    assert (len(topology["servers"]), topology["agreements"]) == (2, [])
    checked = http.post(f"/v1/stores/{one}:check").json()
    assert (checked["ok"], checked["reachable"]) == (False, False)
    assert [each["code"] for each in checked["findings"]] == ["TARGET_UNREACHABLE"]
    told = http.get("/metrics").text
    assert f'lethe_ds389_health{{store="{one}"}} 3.0' in told
    assert f'lethe_ds389_finding{{code="SERVER_AWAY",severity="UNKNOWN",store="{one}"}} 1.0' in told
    patched = http.patch(f"/v1/stores/{one}", json={"suffix": "dc=other"}, headers={"If-Match": "*"})
    assert patched.status_code == 200, patched.text
    assert [
        each["store"] for each in http.get("/v1/ds389/health", params={"suffix": suffix}).json()["servers"]
    ] == [two]
    recovered = http.post(f"/v1/stores/{one}:recover")
    assert recovered.status_code == 200, recovered.text
    assert recovered.json()["foreign_jobs"] == []


def test_clear_text_is_refused_with_a_password_that_is_not_for_it(
    http: httpx.Client, suffix: str, service: ServiceProcess
) -> None:
    body = body_of(suffix, password="secret:" + (name := f"s-{uuid4().hex[:8]}"))
    secret = {
        "name": name,
        "reference": "env:LETHE_SECRET_SHOP",
        "stores": [body["id"]],
        "hosts": ["127.0.0.1"],
    }
    assert http.post("/v1/secrets", json=secret).status_code == 201
    assert http.post("/v1/stores", json=body).status_code == 201
    [found] = http.get(f"/v1/stores/{body['id']}/ds389-health").json()["findings"]
    assert (found["code"], found["severity"]) == ("SERVER_NOT_ASKED", "UNKNOWN")
    assert "TARGET_AUTH_FAILED" in found["detail"]
    assert "clear text" in found["detail"]


def test_what_is_not_there_or_of_another_kind_is_said(http: httpx.Client, suffix: str) -> None:
    for path in ("health", "topology"):
        problem(http.get(f"/v1/ds389/{path}", params={"suffix": suffix}), 404, "SUFFIX_NOT_FOUND")
        problem(http.get(f"/v1/ds389/{path}"), 422, "INVALID_REQUEST")
    problem(http.get("/v1/stores/no-such/ds389-health"), 404, "STORE_NOT_FOUND")
    job = http.post(f"/v1/stores/{register(http, suffix)}/purges", json={"kind": "ROWS", "rule": "r"})
    assert job.status_code in (409, 422)


def test_both_recorded_losses_are_found_over_http(http: httpx.Client) -> None:
    with gzip.open(SESSIONS, "rt") as lines:
        sessions = [json.loads(line) for line in lines]
    found = http.post("/v1/ds389:find-lost", json={"sessions": sessions}).json()
    assert {each["server"]: 0 for each in found["lost"]} == {2: 0, 4: 0}
    assert len(found["lost"]) == 15
    assert (found["known"], len(found["sessions"])) == (2118, 131)
    assert http.post("/v1/ds389:find-lost", json={}).json() == {"known": 0, "lost": [], "sessions": []}
    wrong = {"sessions": [{**sessions[0], "consumer_ruv": ["{replica 1} x"]}]}
    told = problem(http.post("/v1/ds389:find-lost", json=wrong), 422, "INVALID_REQUEST")
    assert [each["pointer"] for each in told["errors"]] == ["/sessions/0"]


def test_the_command_tells_a_monitor_and_names_what_was_lost(
    service: ServiceProcess,
    http: httpx.Client,
    suffix: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = register(http, suffix)
    token = tmp_path / "token"
    token.write_text(service.token)
    access = ["--url", service.url, "--token-file", str(token)]
    assert main(["ds389", "health", "--suffix", suffix, *access]) == 3
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"DS389 UNKNOWN - {suffix}, 1 server(s) asked: ")
    assert first.split(" | ")[1].startswith("findings=1;;;0")
    assert second.startswith(f"UNKNOWN SERVER_AWAY ({store}): ")
    assert main(["ds389", "health", store, "--url", "http://127.0.0.1:9", "--token-file", str(token)]) == 3
    assert main(["ds389", "health", *access]) == 64
    assert main(["ds389", "topology", "--suffix", suffix, *access]) == 0
    assert "not asked" in capsys.readouterr().out
    assert main(["ds389", "lost", "--sessions", str(SESSIONS), "--json"]) == 1
    assert len(json.loads(capsys.readouterr().out)["lost"]) == 15
    assert main(["ds389", "lost", "--sessions", str(SESSIONS), "--show-sessions"]) == 1
    assert "15 lost, 0 suspected" in capsys.readouterr().out
    assert main(["ds389", "lost", "--sessions", str(token)]) == 1
    assert "EVIDENCE_UNREADABLE" in capsys.readouterr().err
    for wrong in (["--changelog", "x=y"], ["--access-log", "0=a"], []):
        assert main(["ds389", "lost", *wrong]) == 64
