"""Many nodes in one request: those of one cluster one after the other, other clusters beside them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.http.slony_cleaning import AT, assert_recorded, log_status
from tests.http.slony_nodes import recorded_nodes
from tests.spark.events.catalogs import Catalogs


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough."""
    return sqlite_service


def _batch(
    http: httpx.Client, stores: list[str], kind: str = "EVENT_CLEANUP", **params: Any
) -> httpx.Response:
    return http.post("/v1/jobs:batch", json={"kind": kind, "stores": stores, "params": params})


def _children(http: httpx.Client, parent: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = http.get("/v1/jobs", params={"parent": parent}).json()["items"]
    return items


def test_nodes_of_one_cluster_are_cleaned_beside_each_other_and_other_clusters_do_not_wait(
    http: httpx.Client, catalogs: Catalogs
) -> None:
    """The first cluster's two nodes are slowed down; the second cluster is through before they are."""
    one = recorded_nodes(http, catalogs, [1, 2])
    for loaded in (node.loaded for node in one.values()):
        loaded.execute("update sl_path set pa_conninfo = pa_conninfo || ' application_name=one'")
    slow = [one[1].id, one[2].id]
    answer = _batch(
        http, slow, confirmed_before=AT, max_rows_in_tx=10, throttle={"rows_per_s": 100}, reason="both"
    )
    parent = accepted(answer)
    other = recorded_nodes(http, catalogs, [1])[1]
    quick = accepted(_batch(http, [other.id], confirmed_before=AT))
    assert wait_for(http, quick)["state"] == "SUCCEEDED"
    assert wait_for(http, parent, timeout_s=120)["state"] == "SUCCEEDED"
    children = _children(http, parent)
    assert {child["params"]["overlap"] for child in children} == {"QUEUE"}
    for child in children:
        events = http.get(f"/v1/jobs/{child['id']}/events", headers={"Accept": "application/json"})
        told = [item["data"].get("waiting_on") or [] for item in events.json()["items"]]
        assert [each for waits in told for each in waits if each["kind"] == "JOB"] == []
    first, second = sorted(children, key=lambda child: child["started_at"])
    assert second["started_at"] < first["finished_at"]
    assert_recorded(one[1].loaded)
    assert_recorded(other.loaded)


def test_the_result_of_a_batch_has_every_store(http: httpx.Client, catalogs: Catalogs, shop: Shop) -> None:
    nodes = recorded_nodes(http, catalogs, [1, 3])
    parent = accepted(_batch(http, [nodes[1].id, nodes[3].id, shop.id], confirmed_before=AT))
    job = wait_for(http, parent)
    assert (job["state"], job["error"]["code"]) == ("FAILED", "CHILDREN_FAILED")
    stores = job["result"]["stores"]
    assert stores[shop.id]["state"] == "REFUSED"
    assert stores[shop.id]["error"]["code"] == "STORE_KIND_WRONG"
    assert stores[nodes[1].id]["removed"]["sl_event"] == 136
    assert stores[nodes[3].id]["state"] == "SUCCEEDED"


def test_log_switches_are_a_batch_too(http: httpx.Client, catalogs: Catalogs) -> None:
    nodes = recorded_nodes(http, catalogs, [1, 2])
    parent = accepted(_batch(http, [node.id for node in nodes.values()], "LOG_SWITCH", action="START"))
    assert wait_for(http, parent)["state"] == "SUCCEEDED"
    outcomes = {child["store"]: child["result"]["outcome"] for child in _children(http, parent)}
    assert set(outcomes.values()) <= {"STARTED", "ALREADY_SWITCHING"}
    assert all(log_status(node.loaded) in (2, 3) for node in nodes.values())


def test_wrong_parameters_are_named_in_their_place(http: httpx.Client, catalogs: Catalogs) -> None:
    node = recorded_nodes(http, catalogs, [1])[1]
    body = problem(_batch(http, [node.id], interval="PT1H", rows=3), 422, "INVALID_REQUEST")
    assert pointers(body) == {"/params/rows"}
    body = problem(_batch(http, [node.id], via="NATIVE", rule="MANUAL"), 422, "VIA_NEEDS_BUILTIN")
    assert pointers(body) == {"/params/rule"}
    plan_id = f"job_{'0' * 26}"
    body = problem(_batch(http, [node.id], plan_id=plan_id), 422, "PLAN_NOT_USABLE")
    assert pointers(body) == {"/params/plan_id"}
    body = problem(_batch(http, [node.id], "LOG_SWITCH", action="BOTH"), 422, "INVALID_REQUEST")
    assert pointers(body) == {"/params/action"}
