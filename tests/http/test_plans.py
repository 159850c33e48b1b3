"""A plan writes nothing, and its execution does what was reviewed or says that it no longer can."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.metadata_rows import MetadataRows
from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.http.targets import CUTOFF, REMOVED_3X, STRANDED_3X, copy_reference, digest_bytes

DISABLE_ONE = (
    "update sym_node set sync_enabled = 0 "
    "where node_id = (select min(node_id) from sym_node where sync_enabled = 1)"
)
ENABLE_ALL = "update sym_node set sync_enabled = 1"
MakeShop = Callable[..., Shop]


def _planned(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    plan: dict[str, Any] = answer.json()
    return plan


def _instant(document: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(document["cutoff"])


def _sql(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as target, target:
        target.execute(statement)


def test_plan_writes_nothing_to_the_target(shop: Shop) -> None:
    before = digest_bytes(shop.path)
    plan = _planned(shop.plan())
    assert digest_bytes(shop.path) == before
    removed = {item["table"].removeprefix("sym_"): item["rows_to_remove"] for item in plan["tables"]}
    assert removed == REMOVED_3X
    assert sum(node["batches"] for node in plan["stranded"]["nodes"]) == STRANDED_3X


def test_plan_with_every_option_writes_nothing_to_the_target(shop: Shop) -> None:
    before = digest_bytes(shop.path)
    for fields in (
        {"strict": True},
        {"stranded": "SKIP"},
        {"archive": {"format": "PARQUET"}},
        {"force": True},
    ):
        _planned(shop.plan(**fields))
    assert digest_bytes(shop.path) == before


def test_plan_that_is_not_ready_in_time_is_a_job(http: httpx.Client, shop: Shop) -> None:
    answer = shop.plan(wait=0)
    job = wait_for(http, accepted(answer))
    assert (job["kind"], job["state"]) == ("PLAN", "SUCCEEDED")
    assert job["result"]["plan_id"] == job["id"]
    assert answer.headers["retry-after"]
    assert answer.headers["preference-applied"] == "wait=0"


def test_purge_of_a_plan_executes_the_reviewed_cutoff_and_counts(http: httpx.Client, shop: Shop) -> None:
    plan = _planned(shop.plan())
    job = wait_for(http, accepted(shop.purge(plan_id=plan["plan_id"])))
    assert job["state"] == "SUCCEEDED", job["error"]
    assert _instant(job["result"]) == _instant(plan) == datetime.fromisoformat(CUTOFF)
    assert job["result"]["removed"] == REMOVED_3X
    assert job["result"]["stranded"]["marked"] == STRANDED_3X


def test_plan_by_retention_keeps_its_cutoff_while_time_goes_on(http: httpx.Client, shop: Shop) -> None:
    plan = _planned(shop.plan(retention_minutes=60))
    time.sleep(0.2)
    job = wait_for(http, accepted(shop.purge(plan_id=plan["plan_id"])))
    assert _instant(job["result"]) == _instant(plan)
    assert job["result"]["cutoff_local"] == plan["cutoff_local"]


def test_plan_keeps_its_cutoff_over_a_changed_parameter(http: httpx.Client, make_shop: MakeShop) -> None:
    shop = make_shop(parameters={"purge.retention.minutes": 60})
    plan = _planned(http.post(f"/v1/stores/{shop.id}/purges?validate_only=true", json={"kind": "OUTGOING"}))
    assert plan["retention_source"] == "STORE"
    assert shop.change(parameters={"purge.retention.minutes": 100_000}).status_code == 200
    job = wait_for(http, accepted(shop.purge(plan_id=plan["plan_id"])))
    assert _instant(job["result"]) == _instant(plan)


@pytest.mark.parametrize("statement", [DISABLE_ONE, ENABLE_ALL], ids=["disabled", "enabled"])
def test_plan_holds_only_for_the_nodes_that_were_reviewed(
    shop: Shop, metadata: MetadataRows, statement: str
) -> None:
    plan = _planned(shop.plan())
    _sql(shop.path, statement)
    before = shop.digest
    with metadata.unchanged():
        detail = problem(shop.purge(plan_id=plan["plan_id"]), 412, "PLAN_NO_LONGER_HOLDS")["detail"]
    assert "stranded" in detail
    assert shop.digest == before


def test_node_disabled_between_submission_and_run_is_not_marked(http: httpx.Client, shop: Shop) -> None:
    plan = _planned(shop.plan())
    http.post(f"/v1/stores/{shop.id}:suspend", json={"reason": "hold"})
    job_id = accepted(shop.purge(plan_id=plan["plan_id"]))
    wait_for(http, job_id, "WAITING", timeout_s=10)
    _sql(shop.path, DISABLE_ONE)
    http.post(f"/v1/stores/{shop.id}:resume")
    job = wait_for(http, job_id)
    if job["state"] == "SUCCEEDED":
        assert job["result"]["stranded"]["marked"] == STRANDED_3X
    else:
        assert job["error"]["code"] == "PLAN_NO_LONGER_HOLDS"


def test_node_disabled_after_a_plan_that_skips_them_changes_nothing(http: httpx.Client, shop: Shop) -> None:
    plan = _planned(shop.plan(stranded="SKIP"))
    _sql(shop.path, "update sym_node set sync_enabled = 0")
    job = wait_for(http, accepted(shop.purge(plan_id=plan["plan_id"], stranded="SKIP")))
    assert job["state"] == "SUCCEEDED"
    assert job["result"]["stranded"]["marked"] == 0


@pytest.mark.parametrize("field", ["url", "table_prefix", "time_zone", "limits"])
def test_plan_ends_with_a_change_of_the_store(
    shop: Shop, metadata: MetadataRows, field: str, roots: Path
) -> None:
    plan = _planned(shop.plan())
    elsewhere = copy_reference(roots / f"{shop.id}-moved.sqlite")
    changes: dict[str, Any] = {
        "url": f"sqlite:///{elsewhere}",
        "table_prefix": "sym2_",
        "time_zone": "Europe/Berlin",
        "limits": {"max_rows": 1_000_000},
    }
    assert shop.change(**{field: changes[field]}).status_code == 200
    before = shop.digest
    with metadata.unchanged():
        problem(shop.purge(plan_id=plan["plan_id"]), 412, "PLAN_NO_LONGER_HOLDS")
    assert shop.digest == before


def test_plan_survives_a_change_that_does_not_touch_it(http: httpx.Client, shop: Shop) -> None:
    plan = _planned(shop.plan())
    assert shop.change(labels={"region": "eu"}).status_code == 200
    wait_for(http, accepted(shop.purge(plan_id=plan["plan_id"])))


@pytest.mark.parametrize("fields", [{"strict": True}, {"stranded": "SKIP"}])
def test_plan_for_other_options_is_refused(
    shop: Shop, metadata: MetadataRows, fields: dict[str, Any]
) -> None:
    plan = _planned(shop.plan())
    before = shop.digest
    with metadata.unchanged():
        problem(shop.purge(plan_id=plan["plan_id"], **fields), 422, "PLAN_DIFFERS")
    assert shop.digest == before


def test_plan_of_another_store_or_none_is_refused(
    http: httpx.Client, shop: Shop, make_shop: MakeShop, metadata: MetadataRows
) -> None:
    other = make_shop()
    plan = _planned(other.plan())
    purge = accepted(other.purge())
    wait_for(http, purge)
    before = shop.digest
    with metadata.unchanged():
        problem(shop.purge(plan_id=plan["plan_id"]), 422, "PLAN_NOT_USABLE")
        problem(other.purge(plan_id=purge), 422, "PLAN_NOT_USABLE")
        problem(shop.purge(plan_id=f"job_{'0' * 26}"), 422, "PLAN_NOT_USABLE")
        both = {"kind": "OUTGOING", "plan_id": plan["plan_id"], "cutoff": CUTOFF}
        problem(http.post(f"/v1/stores/{other.id}/purges", json=both), 422, "INVALID_REQUEST")
    assert shop.digest == before


def test_plan_never_takes_the_claim_of_a_running_purge(http: httpx.Client, shop: Shop) -> None:
    job_id = shop.slow_purge()
    _planned(shop.plan())
    http.post(f"/v1/jobs/{job_id}:abort", json={})
    wait_for(http, job_id)


def test_plan_that_has_expired_is_refused(sqlite_service: ServiceProcess, roots: Path) -> None:
    """A minute is the shortest validity that the settings allow: the row is made older instead of waiting."""
    path = copy_reference(roots / "expired.sqlite")
    with sqlite_service.http() as http:
        body = {"id": "expired", "kind": "SYMMETRICDS", "url": f"sqlite:///{path}"}
        assert http.post("/v1/stores", json=body).status_code == 201
        shop = Shop(http=http, id="expired", path=path)
        plan = _planned(shop.plan())
        left = datetime.fromisoformat(plan["expires_at"]) - datetime.now(UTC)
        assert timedelta(hours=23) < left < timedelta(hours=24)
        earlier = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
        _sql(
            sqlite_service.data_dir / "lethe.db",
            f"update jobs set result = replace(result, '{plan['expires_at']}', '{earlier}') "
            f"where id = '{plan['plan_id']}'",
        )
        before = shop.digest
        problem(shop.purge(plan_id=plan["plan_id"]), 412, "PLAN_NO_LONGER_HOLDS")
        assert shop.digest == before
