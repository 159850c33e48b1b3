"""The purges INCOMING and DATA_GAP over HTTP: everything that OUTGOING has, and only what makes sense."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.oracles.symmetricds_schema import VERSIONS, Version, reference_database

MakeShop = Callable[..., Shop]
GAP_RETENTION = "routing.data.reader.type.gap.retention.period.minutes"
KINDS = {"INCOMING": "incoming_batch", "DATA_GAP": "data_gap"}
KEYS = {"INCOMING": "batch_id, node_id", "DATA_GAP": "start_id, end_id"}
GAP_CUTOFF = "2026-11-01T07:00:00Z"
CUTOFFS = {"INCOMING": "2026-11-01T10:00:00Z", "DATA_GAP": GAP_CUTOFF}


@pytest.fixture
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what differs here is at the target."""
    return sqlite_service


def _run(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as target, target:
        return target.execute(statement).fetchall()


def _keys(path: Path, kind: str) -> set[tuple[Any, ...]]:
    return set(_run(path, f"select {KEYS[kind]} from sym_{KINDS[kind]}"))


def _recorded(version: Version, kind: str) -> set[tuple[Any, ...]]:
    """The keys that the document's statements removed from the recorded database."""
    recorded = json.loads(gzip.decompress(reference_database(version).with_suffix(".json.gz").read_bytes()))
    return {tuple(key) for key in recorded["expected"][KINDS[kind]]}


def _succeeded(http: httpx.Client, job_id: str) -> dict[str, Any]:
    job = wait_for(http, job_id)
    assert job["state"] == "SUCCEEDED", job
    result: dict[str, Any] = job["result"]
    return result


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", list(KINDS))
def test_recorded_rows_go_as_planned_and_come_back(
    http: httpx.Client, make_shop: MakeShop, kind: str, version: Version
) -> None:
    shop = make_shop(version)
    before, recorded = _keys(shop.path, kind), _recorded(version, kind)
    plan = shop.plan(kind=kind, cutoff=CUTOFFS[kind]).json()
    assert [(item["table"], item["rows_to_remove"]) for item in plan["tables"]] == [
        (f"sym_{KINDS[kind]}", len(recorded))
    ]
    assert plan["stranded"] is None
    assert (plan["nodes"] is not None) is (kind == "INCOMING")
    assert _keys(shop.path, kind) == before
    job_id = accepted(shop.purge(kind=kind, plan_id=plan["plan_id"], archive={"format": "PARQUET"}))
    result = _succeeded(http, job_id)
    assert before - _keys(shop.path, kind) == recorded
    assert result["removed"] == {KINDS[kind]: len(recorded)}
    assert (result["counts"], result["archive"]["rows"]) == ("EXACT", len(recorded))
    stats = http.get(f"/v1/stores/{shop.id}/purge-stats").json()
    assert {item["table"]: item["removed"] for item in stats["tables"]} == {
        "sym_data": 0,
        "sym_data_event": 0,
        "sym_outgoing_batch": 0,
        "sym_incoming_batch": 0,
        "sym_data_gap": 0,
    } | {f"sym_{KINDS[kind]}": len(recorded)}
    body = {"into": {"live": True}}
    restored = _succeeded(http, accepted(http.post(f"/v1/archives/{job_id}:restore", json=body)))
    assert restored["rows"] == len(recorded)
    assert _keys(shop.path, kind) == before


@pytest.mark.parametrize("kind", list(KINDS))
def test_fields_of_another_kind_are_refused_by_name(shop: Shop, kind: str) -> None:
    digest = shop.digest
    body = problem(shop.purge(kind=kind, stranded="MARK", strict=False), 422, "INVALID_REQUEST")
    assert [item["pointer"] for item in body["errors"]] == ["/stranded", "/strict"]
    problem(shop.plan(kind=kind, stranded="SKIP"), 422, "INVALID_REQUEST")
    batch = {"kind": "PURGE", "stores": [shop.id], "params": {"kind": kind, "strict": True}}
    body = problem(shop.http.post("/v1/jobs:batch", json=batch), 422, "INVALID_REQUEST")
    assert [item["pointer"] for item in body["errors"]] == ["/params/strict"]
    assert shop.digest == digest


def test_limits_hold_for_every_kind(http: httpx.Client, make_shop: MakeShop) -> None:
    shop = make_shop("2.x", limits={"max_rows": 3})
    digest = shop.digest
    plan = shop.plan(kind="INCOMING").json()
    assert plan["limits"]["exceeded"] == ["max_rows: 81 rows would go, 3 may"]
    problem(shop.purge(kind="INCOMING", plan_id=plan["plan_id"]), 409, "LIMIT_EXCEEDED")
    job = wait_for(http, accepted(shop.purge(kind="INCOMING")))
    assert (job["state"], job["error"]["code"]) == ("FAILED", "LIMIT_EXCEEDED")
    assert _succeeded(http, accepted(shop.purge(kind="DATA_GAP", cutoff=GAP_CUTOFF)))["removed"] == {
        "data_gap": 1
    }
    assert shop.digest != digest


def test_purges_of_two_kinds_run_at_once_and_two_of_one_collide(
    http: httpx.Client, make_shop: MakeShop
) -> None:
    shop = make_shop()
    slow = {"max_rows_in_tx": 5, "throttle": {"rows_per_s": 20}}
    running = accepted(shop.purge(kind="INCOMING", **slow))
    wait_for(http, running, "RUNNING")
    body = problem(shop.purge(kind="INCOMING"), 409, "CONFLICTING_JOB")
    assert body["job_id"] == running
    _succeeded(http, accepted(shop.purge(kind="DATA_GAP", cutoff=GAP_CUTOFF)))
    other = accepted(shop.purge(kind="OUTGOING"))
    _succeeded(http, other)
    assert http.get(f"/v1/jobs/{running}").json()["state"] == "RUNNING"
    http.post(f"/v1/jobs/{running}:abort")
    job = wait_for(http, running)
    assert job["state"] == "ABORTED"
    left = len(_keys(shop.path, "INCOMING"))
    assert job["result"]["removed"] == {"incoming_batch": 100 - left}
    assert 100 - 81 < left < 100


def test_a_paused_purge_goes_on_where_it_was(http: httpx.Client, make_shop: MakeShop) -> None:
    shop = make_shop("2.x")
    before = _keys(shop.path, "INCOMING")
    fields = {"max_rows_in_tx": 3, "throttle": {"rows_per_s": 6}, "archive": {"format": "PARQUET"}}
    job_id = accepted(shop.purge(kind="INCOMING", **fields))
    wait_for(http, job_id, "RUNNING")
    for _ in range(2):
        http.post(f"/v1/jobs/{job_id}:pause")
        wait_for(http, job_id, "PAUSED")
        http.post(f"/v1/jobs/{job_id}:resume")
        wait_for(http, job_id, "RUNNING", "SUCCEEDED")
    http.patch(f"/v1/jobs/{job_id}/throttle", json={"rows_per_s": 10_000})
    result = _succeeded(http, job_id)
    assert before - _keys(shop.path, "INCOMING") == _recorded("2.x", "INCOMING")
    assert result["removed"] == {"incoming_batch": 81}
    assert result["archive"]["rows"] == 81


def test_the_gaps_retention_is_requests_over_stores_over_targets_over_the_documents(
    http: httpx.Client, make_shop: MakeShop
) -> None:
    shop = make_shop("3.x")

    def planned(**fields: Any) -> tuple[int, str]:
        body = http.post(
            f"/v1/stores/{shop.id}/purges",
            params={"validate_only": "true"},
            json={"kind": "DATA_GAP"} | fields,
            headers={"Prefer": "wait=20"},
        ).json()
        return body["retention_minutes"], body["retention_source"]

    assert planned() == (1440, "DEFAULT")
    _run(
        shop.path,
        "create table sym_parameter (external_id text, node_group_id text, param_key text, param_value text)",
    )
    own = "insert into sym_parameter values ('ALL', 'ALL', 'purge.expired.data.gap.retention.minutes', '700')"
    _run(shop.path, own)
    assert planned() == (700, "TARGET")
    assert shop.change(parameters={"purge.expired.data.gap.retention.minutes": 800}).status_code == 200
    assert planned() == (800, "STORE")
    assert planned(retention_minutes=900) == (900, "REQUEST")
    body = http.get(f"/v1/stores/{shop.id}/parameters/{GAP_RETENTION}").json()
    assert (body["value"], body["in_use"]) == (800, True)


def test_a_kind_needs_no_tables_but_its_own(http: httpx.Client, make_shop: MakeShop) -> None:
    shop = make_shop()
    for table in ("data", "data_event", "outgoing_batch", "node"):
        _run(shop.path, f"drop table sym_{table}")
    problem(shop.purge(kind="OUTGOING"), 409, "TARGET_TABLES_MISSING")
    assert _succeeded(http, accepted(shop.purge(kind="INCOMING")))["removed"] == {"incoming_batch": 81}
    _run(shop.path, "alter table sym_data_gap rename column is_expired to is_over")
    problem(shop.purge(kind="DATA_GAP"), 409, "TARGET_SCHEMA_UNSUPPORTED")


def test_check_tells_which_purges_are_possible(http: httpx.Client, make_shop: MakeShop) -> None:
    shop = make_shop("3.x")
    verbs = [f"{verb}_{kind}" for kind in ("OUTGOING", *KINDS) for verb in ("PLAN", "PURGE")]
    found = http.post(f"/v1/stores/{shop.id}:check").json()
    assert found["can"] == verbs
    assert any("swapped" in conflict for conflict in found["conflicts"])
    _run(shop.path, "drop table sym_data_gap")
    found = http.post(f"/v1/stores/{shop.id}:check").json()
    assert found["can"] == verbs[:4]
    assert found["ok"] is True
    assert "NO_DATA_GAP" in [item["code"] for item in found["findings"]]


def test_a_switch_asks_for_the_scope_of_what_it_does(
    service: ServiceProcess, make_shop: MakeShop, make_token: Callable[..., str]
) -> None:
    shop = make_shop()
    with service.http(make_token("parameters:write", "stores:read")) as limited:
        etag = {"If-Match": shop.etag()}
        path = f"/v1/stores/{shop.id}/parameters"
        switch = limited.put(f"{path}/start.purge.job", json={"value": True}, headers=etag)
        assert problem(switch, 403, "SCOPE_MISSING")["scope"] == "purges:write"
        cron = limited.put(f"{path}/job.purge.outgoing.cron", json={"value": "0 0 1 * * *"}, headers=etag)
        assert cron.status_code == 200


def test_a_switch_inside_of_a_store_asks_for_the_same_scope(
    service: ServiceProcess, make_shop: MakeShop, make_token: Callable[..., str]
) -> None:
    """A token for stores alone could have purged by registering a store that purges itself."""
    shop = make_shop()
    on = {"parameters": {"start.purge.job": True}}
    with service.http(make_token("stores:write", "stores:read")) as limited:
        body = {"id": "by-itself", "kind": "SYMMETRICDS", "url": f"sqlite:///{shop.path.parent}/x.db"} | on
        problem(limited.post("/v1/stores", json=body), 403, "SCOPE_MISSING")
        path, etag = f"/v1/stores/{shop.id}", {"If-Match": shop.etag()}
        problem(limited.patch(path, json=on, headers=etag), 403, "SCOPE_MISSING")
        assert limited.get("/v1/stores/by-itself").status_code == 404
        assert shop.change(**on).status_code == 200  # who may purge may switch it on
        kept = limited.patch(path, json=on | {"labels": {"a": "b"}}, headers={"If-Match": shop.etag()})
        assert kept.status_code == 200  # it stays as it was
        problem(
            limited.patch(path, json={"parameters": {}}, headers={"If-Match": shop.etag()}),
            403,
            "SCOPE_MISSING",
        )
    assert shop.change(parameters={}).status_code == 200


def test_switches_are_set_on_stores_only_and_show_their_next_tick(
    http: httpx.Client, make_shop: MakeShop
) -> None:
    problem(
        http.put("/v1/parameters/start.purge.job", json={"value": True}, headers={"If-Match": '"0"'}),
        422,
        "PARAMETER_SCOPE_INVALID",
    )
    shop = make_shop()
    assert http.get(f"/v1/stores/{shop.id}/purge-stats").json()["ticks"] == []
    refused = shop.change(parameters={"job.purge.incoming.cron": "every day"})
    assert "six fields" in problem(refused, 422, "PARAMETER_INVALID")["detail"]
    parameters = {"start.purge.incoming.job": True, "job.purge.incoming.cron": "0 0 5 ? * *"}
    assert shop.change(parameters=parameters).status_code == 200
    [tick] = http.get(f"/v1/stores/{shop.id}/purge-stats").json()["ticks"]
    assert (tick["kind"], tick["cron"], tick["last_at"]) == ("INCOMING", "0 0 5 * * *", None)
    assert tick["next_at"].endswith("T05:00:00Z")
    shop.change(parameters={})
