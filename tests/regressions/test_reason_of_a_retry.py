"""`:retry` took a reason and dropped it: neither the new job nor the audit had it."""

from __future__ import annotations

from typing import Any

import pytest

from app.db import Database
from app.settings import Settings
from tests.app.auth.requests import Http, build, make_token, open_gate
from tests.app.fake_clock import FakeClock
from tests.app.jobs.workbench import Workbench


@pytest.fixture
def http(sqlite_database: Database, settings: Settings, clock: FakeClock) -> Http:
    admin = make_token(sqlite_database, clock)
    return Http(build(settings, sqlite_database, clock, open_gate()), admin)


def _failed(bench: Workbench, reason: str | None = None, **fields: Any) -> str:
    job_id = bench.submit("PURGE", store="shop", params={"kind": "OUTGOING"}, reason=reason, **fields)
    bench.set(job_id, state="FAILED")
    return job_id


def _details(http: Http) -> list[dict[str, Any]]:
    answer = http("GET", "/v1/audit-events?action=job.retry")
    return [each["detail"] for each in answer.json()["items"]]


def test_reason_of_a_retry_is_kept_with_the_new_job_and_in_the_audit(bench: Workbench, http: Http) -> None:
    job_id = _failed(bench, "nightly")
    answer = http("POST", f"/v1/jobs/{job_id}:retry", json={"reason": "the disk has room again"})
    assert (answer.status_code, answer.json()["reason"]) == (202, "the disk has room again"), answer.text
    [detail] = _details(http)
    assert detail["reason"] == "the disk has room again"


def test_retry_without_a_reason_has_that_of_the_former_job(bench: Workbench, http: Http) -> None:
    answer = http("POST", f"/v1/jobs/{_failed(bench, 'nightly')}:retry")
    assert (answer.status_code, answer.json()["reason"]) == (202, "nightly"), answer.text


def test_children_of_a_retried_batch_have_its_reason(bench: Workbench, http: Http) -> None:
    parent = bench.submit("BATCH", params={"kind": "PURGE", "params": {"kind": "OUTGOING"}})
    _failed(bench, "nightly", parent_id=parent)
    bench.set(parent, state="FAILED")
    new = http("POST", f"/v1/jobs/{parent}:retry", json={"reason": "all again"}).json()["id"]
    children = http("GET", f"/v1/jobs?parent={new}").json()["items"]
    assert [each["reason"] for each in children] == ["all again"]


def test_retry_without_a_body_is_the_retry_of_an_empty_one(bench: Workbench, http: Http) -> None:
    path = f"/v1/jobs/{_failed(bench)}:retry"
    answers = [http("POST", path, headers={"Idempotency-Key": "once"}, **body) for body in ({}, {"json": {}})]
    assert [each.status_code for each in answers] == [202, 202], [each.text for each in answers]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    other = http("POST", path, headers={"Idempotency-Key": "once"}, json={"reason": "another"})
    assert other.status_code == 422, other.text
