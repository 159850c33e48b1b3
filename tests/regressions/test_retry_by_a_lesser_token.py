"""A token with nothing but `jobs:control` could not start a purge, but retry one that had failed; and a
restore into the live tables, an admin's act, could be started again by anybody who may abort jobs.
"""

from __future__ import annotations

from typing import Any

import pytest

from app.db import Database
from app.settings import Settings
from tests.app.auth.requests import Http, build, make_token, open_gate
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench

LIVE = {"archive": "job_x", "into": {"file": None, "schema": None, "live": True}}
FILE = {"archive": "job_x", "into": {"file": "/x", "schema": None, "live": False}}


@pytest.fixture
def http(sqlite_database: Database, settings: Settings, clock: FakeClock) -> Http:
    admin = make_token(sqlite_database, clock)
    return Http(build(settings, sqlite_database, clock, open_gate()), admin)


def _token(bench: Workbench, http: Http, scopes: list[str]) -> str:
    answer = http("POST", "/v1/tokens", json={"name": "t", "scopes": scopes})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


@pytest.mark.parametrize(
    ("kind", "params", "needed"),
    [
        ("PURGE", {"kind": "OUTGOING"}, "purges:write"),
        ("PLAN", {"kind": "INCOMING"}, "purges:write"),
        ("BATCH", {"kind": "PURGE", "params": {"kind": "OUTGOING"}}, "purges:write"),
        ("ARCHIVE_RESTORE", LIVE, "admin"),
        ("ARCHIVE_RESTORE", FILE, "stores:write"),
    ],
)
def test_retry_needs_what_the_first_request_needed(
    bench: Workbench, http: Http, kind: str, params: dict[str, Any], needed: str
) -> None:
    job_id = bench.submit(kind, store="shop", params=params)
    bench.set(job_id, state="FAILED")
    scopes = ["jobs:control", "jobs:read", "stores:read"] + (["purges:write"] if "into" in params else [])
    refused = http("POST", f"/v1/jobs/{job_id}:retry", token=_token(bench, http, scopes))
    assert (refused.status_code, refused.json()["code"]) == (403, "SCOPE_MISSING"), refused.text
    assert refused.json()["scope"] == needed
    allowed = http("POST", f"/v1/jobs/{job_id}:retry", token=_token(bench, http, [*scopes, needed]))
    assert allowed.status_code == 202, allowed.text


@pytest.mark.parametrize(("verb", "state"), [("retry", "FAILED"), ("resume", "PAUSED")])
@pytest.mark.parametrize("kind", ["PURGE", "PLAN"])
def test_replicas_of_another_tenant_are_not_asked_again(
    bench: Workbench, http: Http, kind: str, verb: str, state: str
) -> None:
    params = {"kind": "ROWS", "table": "ticket", "replicas": ["of-another"]}
    job_id = bench.submit(kind, store="shop", params=params)
    bench.set(job_id, state=state)
    body = {"name": "t", "role": "operator", "stores": ["shop"]}
    limited = str(http("POST", "/v1/tokens", json=body).json()["token"])
    refused = http("POST", f"/v1/jobs/{job_id}:{verb}", token=limited)
    assert (refused.status_code, refused.json().get("code")) == (403, "STORE_FORBIDDEN"), refused.text
    body["stores"] = ["shop", "of-another"]
    both = str(http("POST", "/v1/tokens", json=body).json()["token"])
    assert http("POST", f"/v1/jobs/{job_id}:{verb}", token=both).status_code in (200, 202)
