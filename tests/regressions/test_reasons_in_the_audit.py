"""A rest of a store, a batch, and what reads or restores an archive were audited without the reason that was
given; a webhook that was turned to another receiver left a row like the one before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.db import Database
from app.settings import Settings
from tests.app.auth.requests import Http, build, make_token, open_gate
from tests.app.fake_clock import FakeClock
from tests.http.targets import copy_reference

WHY = "the disk is full"


@pytest.fixture
def http(sqlite_database: Database, settings: Settings, clock: FakeClock, tmp_path: Path) -> Http:
    admin = make_token(sqlite_database, clock)
    http = Http(build(settings, sqlite_database, clock, open_gate()), admin)
    body = {
        "id": "shop",
        "kind": "SYMMETRICDS",
        "url": f"sqlite:///{copy_reference(tmp_path / 's.db', '3.x')}",
    }
    assert http("POST", "/v1/stores", json=body).status_code == 201
    return http


def _rows(http: Http, action: str) -> list[dict[str, Any]]:
    """The details of an act, the newest first."""
    items = http("GET", f"/v1/audit-events?action={action}").json()["items"]
    return [item["detail"] for item in items]


@pytest.mark.parametrize(
    ("path", "body", "action"),
    [
        ("/v1/stores/shop:suspend", {}, "store.suspend"),
        ("/v1/stores/shop/purges", {"kind": "OUTGOING"}, "purge.create"),
        (
            "/v1/jobs:batch",
            {"kind": "PURGE", "params": {"kind": "OUTGOING"}, "stores": ["shop"]},
            "batch.create",
        ),
    ],
)
@pytest.mark.parametrize("key", [None, "k1"])
def test_the_reason_of_an_act_stands_in_its_row(
    http: Http, path: str, body: dict[str, Any], action: str, key: str | None
) -> None:
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = http("POST", path, json=body | {"reason": WHY}, headers=headers)
    assert answer.status_code in (200, 202), answer.text
    assert [row["reason"] for row in _rows(http, action)] == [WHY]


def test_a_webhook_that_leads_elsewhere_leaves_a_row_that_says_where(http: Http) -> None:
    secret = "T0123/shows-who-may-post"
    body = {"url": f"https://alerts.example/{secret}", "events": ["lethe.job.ended"]}
    made = http("POST", "/v1/webhooks", json=body)
    turned = {"url": f"https://elsewhere.example:8443/{secret}"}
    headers = {"If-Match": made.headers["etag"]}
    answer = http("PATCH", f"/v1/webhooks/{made.json()['id']}", json=turned, headers=headers)
    assert answer.status_code == 200, answer.text
    [created], [changed] = _rows(http, "webhook.create"), _rows(http, "webhook.change")
    assert (created["host"], changed["host"]) == ("alerts.example:443", "elsewhere.example:8443")
    assert secret not in str([created, changed])


def test_the_jobs_of_a_batch_have_its_reason(http: Http) -> None:
    body = {"kind": "PURGE", "params": {"kind": "OUTGOING"}, "stores": ["shop"], "reason": WHY}
    assert http("POST", "/v1/jobs:batch", json=body).status_code == 202
    [child] = http("GET", "/v1/jobs?store=shop").json()["items"]
    assert (child["kind"], child["reason"]) == ("PURGE", WHY)
