"""Purges that are refused by the rules of retention, limits and the target itself; no row changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.http.metadata_rows import MetadataRows
from tests.http.problem import problem
from tests.http.shop import Shop, accepted, wait_for
from tests.http.targets import copy_reference, symmetricds_rows

MakeShop = Callable[..., Shop]


def _refused(shop: Shop, metadata: MetadataRows, status: int, code: str, **fields: object) -> str:
    """Ask for plan and purge, both refused alike with nothing changed; returns the detail."""
    before = shop.digest
    with metadata.unchanged():
        body = problem(shop.purge(**fields), status, code)
        problem(shop.plan(**fields), status, code)
    assert shop.digest == before
    return str(body["detail"])


def test_cutoff_in_the_future_is_refused(shop: Shop, metadata: MetadataRows) -> None:
    later = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    for force in (False, True):
        _refused(shop, metadata, 422, "FUTURE_CUTOFF", cutoff=later, force=force)


@pytest.mark.parametrize("minutes", [0, 1, 9])
def test_retention_below_ten_minutes_is_refused_without_force(
    shop: Shop, metadata: MetadataRows, minutes: int
) -> None:
    detail = _refused(shop, metadata, 422, "RETENTION_TOO_SHORT", retention_minutes=minutes)
    assert "force" in detail


def test_cutoff_within_ten_minutes_is_refused_without_force(shop: Shop, metadata: MetadataRows) -> None:
    recent = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    _refused(shop, metadata, 422, "RETENTION_TOO_SHORT", cutoff=recent)


def test_short_retention_of_the_target_itself_is_refused_too(
    make_shop: MakeShop, metadata: MetadataRows
) -> None:
    shop = make_shop(parameters={"purge.retention.minutes": 3})
    before = shop.digest
    with metadata.unchanged():
        problem(
            shop.http.post(f"/v1/stores/{shop.id}/purges", json={"kind": "OUTGOING"}),
            422,
            "RETENTION_TOO_SHORT",
        )
    assert shop.digest == before


def test_short_retention_with_force_is_taken(http: httpx.Client, shop: Shop) -> None:
    job = wait_for(http, accepted(shop.purge(retention_minutes=5, force=True)))
    assert job["state"] == "SUCCEEDED", job["error"]
    assert job["result"]["removed"]["data"] > 0


@pytest.mark.parametrize(("limits", "number"), [({"max_rows": 592}, "593"), ({"max_fraction": 0.5}, "0.5")])
def test_exceeded_limit_fails_the_job_before_its_first_delete(
    http: httpx.Client, make_shop: MakeShop, limits: dict[str, float], number: str
) -> None:
    shop = make_shop(limits=limits)
    before = symmetricds_rows(shop.path)
    job = wait_for(http, accepted(shop.purge()))
    assert (job["state"], job["error"]["code"]) == ("FAILED", "LIMIT_EXCEEDED")
    assert number in job["error"]["detail"]
    assert symmetricds_rows(shop.path) == before
    plan = shop.plan()
    assert plan.status_code == 200, plan.text
    assert plan.json()["limits"]["exceeded"]
    refused = problem(shop.purge(plan_id=plan.json()["plan_id"]), 409, "LIMIT_EXCEEDED")
    assert number in refused["detail"]
    assert symmetricds_rows(shop.path) == before


def test_limit_that_is_just_kept_lets_the_purge_run(http: httpx.Client, make_shop: MakeShop) -> None:
    shop = make_shop(limits={"max_rows": 593})
    job = wait_for(http, accepted(shop.purge()))
    assert job["state"] == "SUCCEEDED", job["error"]


def test_missing_tables_are_named(make_shop: MakeShop, metadata: MetadataRows) -> None:
    shop = make_shop(table_prefix="nothing_")
    detail = _refused(shop, metadata, 409, "TARGET_TABLES_ELSEWHERE")
    assert "nothing_data" in detail


def test_database_without_any_table_is_refused(make_shop: MakeShop, metadata: MetadataRows) -> None:
    shop = make_shop()
    shop.path.unlink()
    sqlite3.connect(shop.path).close()
    detail = _refused(shop, metadata, 409, "TARGET_TABLES_MISSING")
    assert "sym_data" in detail


def test_missing_database_file_is_refused_and_not_made(shop: Shop, metadata: MetadataRows) -> None:
    shop.path.unlink()
    with metadata.unchanged():
        problem(shop.purge(), 502, "TARGET_DATABASE_MISSING")
        problem(shop.plan(), 502, "TARGET_DATABASE_MISSING")
    assert not shop.path.exists()


def test_file_that_is_no_database_is_refused(shop: Shop, metadata: MetadataRows) -> None:
    shop.path.write_bytes(b"not a database at all, but long enough to have a header" * 50)
    content = shop.path.read_bytes()
    with metadata.unchanged():
        answer = shop.purge()
    assert 400 <= answer.status_code < 600
    assert answer.status_code != 500, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert shop.path.read_bytes() == content


def test_mixed_time_types_are_refused(shop: Shop, metadata: MetadataRows) -> None:
    with closing(sqlite3.connect(shop.path)) as target, target:
        target.execute(
            "update sym_data set create_time = 1700000000000 "
            "where data_id = (select min(data_id) from sym_data)"
        )
    _refused(shop, metadata, 409, "MIXED_TIME_TYPES")


def test_read_only_file_cannot_be_purged_but_planned(
    http: httpx.Client, make_shop: MakeShop, metadata: MetadataRows, roots: Path
) -> None:
    shop = make_shop()
    shop.path.chmod(0o444)
    before = shop.digest
    with metadata.unchanged():
        problem(shop.purge(), 409, "TARGET_READ_ONLY")
    assert shop.digest == before


def test_file_that_became_a_link_to_outside_is_not_followed(
    http: httpx.Client, make_shop: MakeShop, tmp_path: Path
) -> None:
    """`:check` and `purge-stats` read a database outside of LETHE_ALLOWED_ROOTS through such a link."""
    shop = make_shop()
    theirs = copy_reference(tmp_path / "theirs.sqlite", "3.x")
    shop.path.unlink()
    shop.path.symlink_to(theirs)
    found = http.post(f"/v1/stores/{shop.id}:check").json()
    assert (found["ok"], [each["code"] for each in found["findings"]]) == (False, ["PATH_NOT_ALLOWED"])
    problem(http.get(f"/v1/stores/{shop.id}/purge-stats"), 422, "PATH_NOT_ALLOWED")
    problem(shop.purge(), 422, "PATH_NOT_ALLOWED")


def test_suspended_store_lets_its_purge_wait_until_resumed(http: httpx.Client, shop: Shop) -> None:
    before = shop.digest
    answer = http.post(f"/v1/stores/{shop.id}:suspend", json={"reason": "restore test", "duration": "PT1H"})
    assert answer.json()["suspended"]["reason"] == "restore test"
    job_id = accepted(shop.purge())
    job = wait_for(http, job_id, "WAITING")
    assert {item["kind"] for item in job["waiting_on"]} == {"STORE_SUSPENDED"}
    # It looks again at times, and finds the same.
    job = http.get(f"/v1/jobs/{job_id}", headers={"Prefer": "wait=1"}).json()
    assert job["state"] in ("WAITING", "QUEUED", "RUNNING")
    assert shop.digest == before
    resumed = http.post(f"/v1/stores/{shop.id}:resume")
    assert resumed.json()["suspended"] is None
    assert wait_for(http, job_id)["state"] == "SUCCEEDED"


def test_suspended_store_is_named_as_the_cause(http: httpx.Client, shop: Shop) -> None:
    http.post(f"/v1/stores/{shop.id}:suspend", json={"reason": "r"})
    job_id = accepted(shop.purge())
    job = wait_for(http, job_id, "WAITING", timeout_s=10)
    assert [(item["kind"], item["ref"]) for item in job["waiting_on"]] == [("STORE_SUSPENDED", shop.id)]
    http.post(f"/v1/jobs/{job_id}:abort", json={})
    assert wait_for(http, job_id)["state"] == "ABORTED"


def test_second_purge_of_the_same_tables_is_refused_or_waits(
    http: httpx.Client, shop: Shop, metadata: MetadataRows
) -> None:
    first = shop.slow_purge()
    body = problem(shop.purge(), 409, "CONFLICTING_JOB")
    assert body["job_id"] == first
    queued = accepted(shop.purge(overlap="QUEUE"))
    http.post(f"/v1/jobs/{first}:abort", json={"reason": "test"})
    assert wait_for(http, first)["state"] == "ABORTED"
    assert wait_for(http, queued)["state"] == "SUCCEEDED"


def test_second_store_on_the_same_database_conflicts_too(
    http: httpx.Client, make_shop: MakeShop, shop: Shop
) -> None:
    first = shop.slow_purge()
    other = make_shop(url=f"sqlite:///{shop.path}")
    body = problem(other.purge(), 409, "CONFLICTING_JOB")
    assert body["job_id"] == first
    http.post(f"/v1/jobs/{first}:abort", json={})
    wait_for(http, first)


def test_target_of_a_store_cannot_change_under_its_job(http: httpx.Client, shop: Shop) -> None:
    job_id = shop.slow_purge()
    problem(shop.change(url=f"sqlite:///{shop.path}.other"), 409, "STORE_IN_USE")
    problem(http.delete(f"/v1/stores/{shop.id}", headers={"If-Match": shop.etag()}), 409, "STORE_IN_USE")
    http.post(f"/v1/jobs/{job_id}:abort", json={})
    wait_for(http, job_id)


def test_illegal_transition_names_the_allowed_ones(http: httpx.Client, shop: Shop) -> None:
    job_id = accepted(shop.purge())
    wait_for(http, job_id)
    body = problem(http.post(f"/v1/jobs/{job_id}:pause", json={}), 409, "ILLEGAL_TRANSITION")
    assert (body["state"], body["allowed"]) == ("SUCCEEDED", [])
    problem(http.post(f"/v1/jobs/{job_id}:retry", json={}), 409, "ILLEGAL_TRANSITION")
    problem(http.patch(f"/v1/jobs/{job_id}/throttle", json={"rows_per_s": 5}), 409, "JOB_ENDED")
