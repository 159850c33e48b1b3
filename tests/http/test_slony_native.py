"""NATIVE and SYNC over HTTP: the cluster's own functions are called where they are and would lose nothing."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.http.problem import problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import accepted, wait_for
from tests.http.slony_cleaning import clean, cleaned, plan, switched
from tests.http.slony_nodes import NodeStore, new_name, register
from tests.slony_cluster import SlonyCluster

SYNCS = 20


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what is cleaned lies at the target."""
    return sqlite_service


@pytest.fixture
def node(http: httpx.Client, bare_slony: SlonyCluster) -> NodeStore:
    """Node 1 with twenty new SYNCs, all of which nodes 2 and 3 have confirmed."""
    for _ in range(SYNCS):
        bare_slony.sync(1)
    confirm_all(bare_slony)
    return register(http, url=bare_slony.url(1), cluster=bare_slony.name)


def confirm_all(cluster: SlonyCluster) -> None:
    """Every node confirms every event of every other, an hour ago."""
    cluster.run(
        1,
        "insert into sl_confirm (con_origin, con_received, con_seqno, con_timestamp)"
        " select ev_origin, no_id, max(ev_seqno), now() - interval '1 hour' from sl_event, sl_node"
        " where no_id <> ev_origin group by 1, 2",
    )


def events(cluster: SlonyCluster) -> list[tuple[Any, ...]]:
    return cluster.run(1, "select ev_origin, ev_seqno from sl_event order by 1, 2")


def test_where_the_function_is_there_it_does_the_work_as_planned(
    node: NodeStore, bare_slony: SlonyCluster
) -> None:
    before = events(bare_slony)
    shown = plan(node, interval="PT1M").json()
    assert (shown["via"], shown["hazards"]) == ("NATIVE", [])
    assert shown["tables"]["sl_event"] >= SYNCS - 1
    assert events(bare_slony) == before
    result = cleaned(node, interval="PT1M")
    assert (result["via"], result["classification"], result["differences"]) == ("NATIVE", "AS_PLANNED", [])
    assert (
        result["removed"]["sl_event"] == shown["tables"]["sl_event"] == len(before) - len(events(bare_slony))
    )
    assert result["log_switch"]["step"] == "BY_PROGRAM"
    assert result["log_switch"]["status"] == bare_slony.log_status(1)


def test_builtin_is_taken_where_it_is_asked_for(node: NodeStore, bare_slony: SlonyCluster) -> None:
    before = len(events(bare_slony))
    result = cleaned(node, interval="PT1M", via="BUILTIN")
    assert (result["via"], result["counts"]) == ("BUILTIN", "EXACT")
    assert result["removed"]["sl_event"] == before - len(events(bare_slony)) >= SYNCS - 1


def test_what_nobody_confirmed_is_kept_by_refusing_or_by_builtin(
    node: NodeStore, bare_slony: SlonyCluster
) -> None:
    """The function takes a receiver that has no row at all for one that has confirmed everything."""
    bare_slony.run(1, "delete from sl_confirm where con_origin = 1 and con_received = 3")
    before, status = events(bare_slony), bare_slony.log_status(1)
    job = wait_for(node.http, accepted(clean(node, interval="PT1M", via="NATIVE")))
    assert (job["state"], job["error"]["code"]) == ("FAILED", "UNCONFIRMED_WOULD_GO")
    assert "node 3 never confirmed anything of origin 1" in job["error"]["detail"]
    assert (events(bare_slony), bare_slony.log_status(1)) == (before, status)
    result = cleaned(node, interval="PT1M")
    assert result["via"] == "BUILTIN"
    assert "HELD_NEVER_CONFIRMED" in {item["code"] for item in result["warnings"]}
    of_node_1 = [row for row in before if row[0] == 1]
    assert [row for row in events(bare_slony) if row[0] == 1] == of_node_1


def test_sessions_from_before_a_switch_are_waited_for(node: NodeStore, bare_slony: SlonyCluster) -> None:
    """The function would end the switch, and what they write then would lie in a clean table."""
    cleaned(node, interval="PT1M")
    switched(node, "FINISH")
    with bare_slony.connect(1, autocommit=False) as slon:
        slon.execute("select last_value from sl_log_status")
        switched(node, "START")
        before = bare_slony.log_status(1)
        shown = plan(node, interval="PT1M").json()
        assert [item["kind"] for item in shown["hazards"]] == ["LOG_STILL_WRITTEN"]
        job_id = accepted(clean(node, interval="PT1M", via="NATIVE"))
        job = wait_for(node.http, job_id, "WAITING")
        assert [item["kind"] for item in job["waiting_on"]] == ["OLD_TRANSACTION"]
        assert f"pid {slon.info.backend_pid} " in job["waiting_on"][0]["ref"]
        assert bare_slony.log_status(1) == before
        slon.rollback()
    job = wait_for(node.http, job_id)
    assert (job["state"], job["result"]["classification"]) == ("SUCCEEDED", "AS_PLANNED")
    assert bare_slony.log_status(1) != before


def test_a_sync_is_made_by_the_cluster_and_once_for_a_key(
    http: httpx.Client, bare_slony: SlonyCluster
) -> None:
    node = register(http, url=bare_slony.url(1), cluster=bare_slony.name)
    count = "select count(*) from sl_event where ev_type = 'SYNC'"
    [(before,)] = bare_slony.run(1, count)
    headers = {"Idempotency-Key": new_name("sync")}
    made = http.post(f"{node.url}/events", json={"type": "SYNC"}, headers=headers)
    assert made.status_code == 201, made.text
    body = made.json()
    assert (body["origin"], body["type"], body["data"]) == (1, "SYNC", [None] * 8)
    assert made.headers["location"] == f"{node.url}/events/1/{body['seqno']}"
    shown = http.get(made.headers["location"]).json()
    assert {name: shown[name] for name in body} == body
    again = http.post(f"{node.url}/events", json={"type": "SYNC"}, headers=headers)
    assert (again.status_code, again.json(), again.headers["location"]) == (
        201,
        body,
        made.headers["location"],
    )
    assert again.headers["idempotency-replayed"] == "true"
    assert bare_slony.run(1, count) == [(before + 1,)]
    [row] = [
        row
        for row in http.get("/v1/audit-events").json()["items"]
        if row["store"] == node.id and row["action"] == "event.create"
    ]
    assert (row["subject_type"], row["subject_id"], row["detail"]) == ("event", "SYNC", {"type": "SYNC"})


def test_the_cluster_s_own_function_is_used_where_it_is(http: httpx.Client, bare_slony: SlonyCluster) -> None:
    first = register(http, url=bare_slony.url(1), cluster=bare_slony.name)
    register(http, url=bare_slony.url(2), cluster=bare_slony.name)
    made = http.post(f"{first.url}/events", json={"type": "SYNC"}).json()
    # No slon has ever run: the two catalogs have no path in common, nothing tells that they are one cluster.
    problem(first.confirm(1, 2, made["seqno"]), 409, "RECEIVER_NOT_ASKED")
    forced = first.confirm(1, 2, made["seqno"], force=True, reason="no slon runs here")
    assert (forced.status_code, forced.json()["changed"]) == (200, True)
    [(rows,)] = bare_slony.run(
        1, f"select count(*) from sl_confirm where con_received = 2 and con_seqno = {made['seqno']}"
    )
    assert rows == 1
    assert first.matrix()[1, 2]["state"] == "CURRENT"
