"""Who may what: tokens that are missing, unknown, expired, revoked, or limited to less."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.http.metadata_rows import MetadataRows
from tests.http.problem import problem
from tests.http.service_process import ROOT, ServiceProcess
from tests.http.shop import Shop, accepted, wait_for

MakeToken = Callable[..., str]
ANONYMOUS = {"/livez", "/readyz"}
METHODS = ("get", "put", "post", "patch", "delete")


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what tokens may do is decided before anything is written."""
    return sqlite_service


def _operations() -> list[tuple[str, str]]:
    import json

    document: dict[str, Any] = json.loads((ROOT / "openapi" / "openapi.json").read_text())
    found = [
        (method, path) for path, item in document["paths"].items() for method in METHODS if method in item
    ]
    return [(method, path) for method, path in found if path not in ANONYMOUS]


def _fill(path: str) -> str:
    job = f"job_{'0' * 26}"
    zeros = "0" * 26
    return path.format(
        store_id="none",
        peer_rid=2,
        job_id=job,
        token_id=f"tok_{zeros}",
        name="purge.retention.minutes",
        cycle_id=f"cyc_{zeros}",
        session_id=f"bks_{zeros}",
        protection_id=f"prt_{zeros}",
        agreement_id=f"agr_{zeros}",
        discard_grant_id=f"dgr_{zeros}",
        webhook_id=f"whk_{zeros}",
        delivery_id=f"dlv_{zeros}",
        extinction_id=f"ext_{zeros}",
        replication_session_id=f"rps_{zeros}",
        key_id=f"ed25519:{'0' * 64}",
        schedule_id=f"sch_{zeros}",
        window_id=f"win_{zeros}",
        database="ZA",
        key="aw",
        file="00000000.jdb",
        offset=0,
        origin=1,
        seqno=1,
    )


@pytest.mark.parametrize("path", sorted(ANONYMOUS))
def test_health_is_told_to_anyone_in_one_word(anonymous: httpx.Client, path: str) -> None:
    answer = anonymous.get(path)
    assert answer.status_code == 200
    assert set(answer.json()) == {"status"}


@pytest.mark.parametrize(("method", "path"), _operations())
def test_everything_else_wants_a_token(
    anonymous: httpx.Client, metadata: MetadataRows, method: str, path: str
) -> None:
    body = {"json": {}} if method in ("put", "post", "patch") else {}
    with metadata.unchanged():
        answer = anonymous.request(method, _fill(path), **body)
    problem(answer, 401, "TOKEN_MISSING")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("value", ["Bearer nonsense", "Bearer", "Basic YTpi", "Bearer a b", "bearer lethe_x"])
def test_authorization_that_is_none_is_refused(anonymous: httpx.Client, value: str) -> None:
    answer = anonymous.get("/v1/jobs", headers={"Authorization": value})
    assert answer.status_code == 401
    problem(answer, 401, "TOKEN_UNKNOWN" if answer.json()["code"] == "TOKEN_UNKNOWN" else "TOKEN_MISSING")


def test_unknown_token_is_refused(service: ServiceProcess) -> None:
    with service.http("lethe_unknown") as stranger:
        problem(stranger.get("/v1/jobs"), 401, "TOKEN_UNKNOWN")


def test_expired_token_is_refused(
    service: ServiceProcess, make_token: MakeToken, shop: Shop, metadata: MetadataRows
) -> None:
    secret = make_token("admin", expires_in="PT1S")
    time.sleep(1.1)
    before = shop.digest
    with service.http(secret) as late, metadata.unchanged():
        problem(late.get("/v1/jobs"), 401, "TOKEN_EXPIRED")
        problem(late.post(f"/v1/stores/{shop.id}/purges", json={"kind": "OUTGOING"}), 401, "TOKEN_EXPIRED")
    assert shop.digest == before


def test_revoked_token_is_refused_at_once(service: ServiceProcess, http: httpx.Client, shop: Shop) -> None:
    made = http.post("/v1/tokens", json={"name": "short", "scopes": ["jobs:read"]}).json()
    with service.http(made["token"]) as holder:
        assert holder.get("/v1/jobs").status_code == 200
        revoked = http.post(f"/v1/tokens/{made['id']}:revoke")
        assert revoked.json()["revoked_at"] is not None
        problem(holder.get("/v1/jobs"), 401, "TOKEN_REVOKED")
    again = http.post(f"/v1/tokens/{made['id']}:revoke")
    assert (again.status_code, again.json()["revoked_at"]) == (200, revoked.json()["revoked_at"])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/stores/{shop}/purges", {"kind": "OUTGOING"}),
        ("POST", "/v1/stores/{shop}/purges?validate_only=true", {"kind": "OUTGOING"}),
        ("POST", "/v1/stores", {"id": "new", "kind": "SYMMETRICDS", "url": "sqlite:////x"}),
        ("POST", "/v1/stores/{shop}:suspend", {"reason": "r"}),
        ("POST", "/v1/stores/{shop}:recover", None),
        ("DELETE", "/v1/stores/{shop}", None),
        ("POST", "/v1/tokens", {"name": "n", "scopes": ["jobs:read"]}),
        ("GET", "/v1/tokens", None),
        ("PUT", "/v1/parameters/purge.retention.minutes", {"value": 60}),
        ("PUT", "/v1/stores/{shop}/parameters/purge.retention.minutes", {"value": 60}),
        ("POST", "/v1/jobs/{job}:abort", {}),
        ("PATCH", "/v1/jobs/{job}/throttle", {"rows_per_s": 1}),
        ("POST", "/v1/jobs:batch", {"kind": "PURGE", "params": {"kind": "OUTGOING"}, "stores": ["{shop}"]}),
    ],
)
def test_scope_that_is_missing_is_named(
    service: ServiceProcess,
    make_token: MakeToken,
    shop: Shop,
    metadata: MetadataRows,
    method: str,
    path: str,
    body: dict[str, Any] | None,
) -> None:
    secret = make_token("stores:read", "jobs:read", "audit:read")
    before = shop.digest
    path = path.format(shop=shop.id, job=f"job_{'0' * 26}")
    with service.http(secret) as viewer, metadata.unchanged():
        answer = viewer.request(method, path, json=body, headers={"If-Match": '"1"'})
    assert problem(answer, 403, "SCOPE_MISSING")["scope"]
    assert shop.digest == before


def test_backup_role_holds_three_scopes_and_nothing_else(
    service: ServiceProcess, http: httpx.Client, shop: Shop
) -> None:
    made = http.post("/v1/tokens", json={"name": "tool", "role": "backup"}).json()
    assert sorted(made["scopes"]) == ["backups:write", "jobs:read", "stores:read"]
    with service.http(made["token"]) as tool:
        assert tool.get(f"/v1/stores/{shop.id}").status_code == 200
        problem(tool.post(f"/v1/stores/{shop.id}/purges", json={"kind": "OUTGOING"}), 403, "SCOPE_MISSING")


def test_token_of_another_store_sees_and_touches_nothing_of_this_one(
    service: ServiceProcess, http: httpx.Client, shop: Shop, make_token: MakeToken, metadata: MetadataRows
) -> None:
    job_id = accepted(shop.purge())
    wait_for(http, job_id)
    secret = make_token("admin", stores=["another"])
    before = shop.digest
    with service.http(secret) as other, metadata.unchanged():
        for path in (f"/v1/stores/{shop.id}", f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/events"):
            problem(other.get(path), 403, "STORE_FORBIDDEN")
        for path in ("/purges", "/purges?validate_only=true"):
            answer = other.post(f"/v1/stores/{shop.id}{path}", json={"kind": "OUTGOING"})
            problem(answer, 403, "STORE_FORBIDDEN")
        for verb in ("check", "resume", "recover"):
            problem(other.post(f"/v1/stores/{shop.id}:{verb}"), 403, "STORE_FORBIDDEN")
        problem(other.post(f"/v1/jobs/{job_id}:abort", json={}), 403, "STORE_FORBIDDEN")
        body = {"kind": "PURGE", "params": {"kind": "OUTGOING"}, "stores": [shop.id]}
        problem(other.post("/v1/jobs:batch", json=body), 403, "STORE_FORBIDDEN")
        headers = {"If-Match": '"0"'}
        answer = other.put("/v1/parameters/purge.retention.minutes", json={"value": 60}, headers=headers)
        problem(answer, 403, "TOKEN_LIMITED_TO_STORES")
        for path in ("/v1/stores", "/v1/jobs", "/v1/archives", "/v1/audit-events"):
            assert other.get(path).json()["items"] == []
    assert shop.digest == before


def test_token_limited_to_stores_gives_no_token_beyond_them(
    service: ServiceProcess, make_token: MakeToken, metadata: MetadataRows
) -> None:
    """A token limited to stores once could make itself a token for all of them."""
    secret = make_token("admin", stores=["another"])
    with service.http(secret) as limited, metadata.unchanged():
        for stores in (None, ["another", "third"]):
            answer = limited.post("/v1/tokens", json={"name": "n", "scopes": ["admin"], "stores": stores})
            assert answer.status_code == 403, answer.text


def test_token_gives_away_no_scope_that_it_lacks(service: ServiceProcess, make_token: MakeToken) -> None:
    with service.http(make_token("jobs:read")) as reader:
        answer = reader.post("/v1/tokens", json={"name": "n", "scopes": ["admin"]})
        problem(answer, 403, "SCOPE_MISSING")


def test_secret_of_a_token_is_shown_once(http: httpx.Client) -> None:
    body = {"name": "once", "scopes": ["jobs:read"]}
    headers = {"Idempotency-Key": "token-shown-once"}
    made = http.post("/v1/tokens", json=body, headers=headers)
    replayed = http.post("/v1/tokens", json=body, headers=headers)
    assert made.json()["token"].startswith("lethe_")
    assert replayed.json() == made.json() | {"token": None}
    assert replayed.headers["idempotency-replayed"] == "true"
    assert made.json()["token"] not in http.get("/v1/tokens?page_size=500").text
    assert made.json()["token"] not in http.get("/v1/audit-events?page_size=500").text
