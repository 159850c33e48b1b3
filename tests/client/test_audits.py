"""Audits and dead letters by the client library: what is sent, and what comes back."""

import httpx
from lethe_client import Lethe

from tests.client.conftest import Script

JOB = {"id": "job_1", "kind": "AUDIT", "state": "QUEUED", "store": "paris"}
LETTER = {
    "direction": "SENT",
    "peer": "agr_a",
    "rid": 2,
    "csn": "65000032000000020000",
    "kind": "NOVELTY",
    "database": "ZGI=",
    "key": "aw==",
    "payload": None,
    "code": "KIND_UNKNOWN",
    "attempts": 2,
    "resolved_at": None,
}


def test_an_audit_is_asked_for_with_its_ranges(lethe: Lethe, script: Script) -> None:
    script.replies = [httpx.Response(202, json=JOB)]
    ranges = {2: (None, "65000032000000020000")}
    job = lethe.audits.create("paris", "agr_a", ranges=ranges, entries=False)
    assert (job.id, script.requests[0].url.path) == ("job_1", "/v1/stores/paris/audits")
    assert script.bodies() == [
        {"agreement_id": "agr_a", "entries": False, "range": {"2": [None, "65000032000000020000"]}}
    ]
    assert script.headers("idempotency-key") != [None]


def test_letters_come_page_by_page(lethe: Lethe, script: Script) -> None:
    script.replies = [
        httpx.Response(200, json={"items": [LETTER], "next_page_token": "more"}),
        httpx.Response(200, json={"items": [LETTER | {"rid": 3}], "next_page_token": ""}),
    ]
    found = list(lethe.dead_letters.list("paris", open_only=True))
    assert [(each.rid, each.attempts, each.resolved_at) for each in found] == [(2, 2, None), (3, 2, None)]
    assert [request.url.params["open_only"] for request in script.requests] == ["true", "true"]
    assert script.requests[1].url.params["page_token"] == "more"
