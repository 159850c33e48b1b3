"""Event cleanups over HTTP: what the program would leave, asked for, planned, bounded, waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.http.slony_cleaning import (
    AT,
    REMOVED,
    Before,
    assert_recorded,
    clean,
    cleaned,
    count,
    log_status,
    plan,
    slow_cleanup,
)
from tests.http.slony_nodes import NodeStore, new_name, recorded_nodes, register
from tests.spark.events.catalogs import Catalogs


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: what is cleaned lies at the target."""
    return sqlite_service


@pytest.fixture
def node(http: httpx.Client, catalogs: Catalogs) -> NodeStore:
    """Node 1 while node 3 was down."""
    return recorded_nodes(http, catalogs, [1])[1]


def test_a_cleanup_leaves_what_the_program_left_and_tells_of_every_table(node: NodeStore) -> None:
    result = cleaned(node, reason="nightly")
    assert_recorded(node.loaded)
    assert (result["via"], result["rule"], result["counts"]) == ("BUILTIN", "PROGRAM", "EXACT")
    assert (result["confirmed_before"], result["removed"], result["planned_rows"]) == (AT, REMOVED, None)
    assert result["log_switch"] == {
        "step": "FINISHED",
        "emptied": "sl_log_1",
        "status_before": 3,
        "status": 1,
    }
    assert [(item["origin"], item["bound"], item["rows_left"]) for item in result["origins"]] == [
        (1, 5_000_000_103, 40),
        (2, 5_000_000_018, 5),
        (3, 5_000_000_018, 2),
    ]
    assert "later ones too lately" in result["origins"][0]["held"]
    assert "40 events of node 1 stay" in result["origins"][0]["held"]
    assert (result["classification"], result["archive"], result["warnings"]) == ("AS_PLANNED", None, [])


def test_a_second_cleanup_removes_nothing_and_goes_on_with_the_log_as_the_program_does(
    node: NodeStore,
) -> None:
    cleaned(node)
    second = cleaned(node)
    assert set(second["removed"].values()) == {0}
    assert second["log_switch"] == {"step": "STARTED", "status_before": 1, "status": 2}
    assert_recorded(node.loaded, runs=2)
    third = cleaned(node)
    assert third["log_switch"]["step"] == "BLOCKED"
    [blocked] = third["log_switch"]["blocked"]["origins"]
    assert (blocked["origin"], blocked["reason"], blocked["oldest_sync"]) == (1, "NOT_DRAINED", 5_000_000_103)
    assert_recorded(node.loaded, runs=3)


def test_a_plan_reads_and_writes_nothing(node: NodeStore) -> None:
    before = node.loaded.rows()
    answer = plan(node)
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert node.loaded.rows() == before
    assert (shown["rows"], shown["rows_to_remove"], shown["tables"]) == (183, 359, REMOVED)
    assert (shown["via"], shown["hazards"], shown["limits"]["exceeded"]) == ("BUILTIN", [], [])
    first = shown["origins"][0]
    assert (first["origin"], first["rows_to_remove"], first["syncs_to_remove"], first["bound"]) == (
        1,
        102,
        87,
        5_000_000_103,
    )
    assert first["held"] == {"why": "YOUNG_CONFIRMATION", "receiver": 2, "seqno": 5_000_000_103}
    assert (shown["log_switch"]["step"], shown["log_switch"]["table"]) == ("FINISH", "sl_log_1")


def test_a_reviewed_plan_is_executed_with_its_own_instant(node: NodeStore) -> None:
    plan_id = plan(node).json()["plan_id"]
    result = cleaned(node, plan_id=plan_id)
    assert (result["confirmed_before"], result["interval_source"]) == (AT, "PLAN")
    assert_recorded(node.loaded)


def test_what_is_confirmed_after_the_review_stays_for_the_next_cleanup(node: NodeStore) -> None:
    """Only the instant came from the plan: what had been confirmed in between went unreviewed."""
    reviewed = plan(node).json()
    younger = "con_timestamp = con_timestamp - interval '1 day', con_seqno = con_seqno"
    node.loaded.query(f"update sl_confirm set {younger} returning 1")
    assert plan(node).json()["rows_to_remove"] > reviewed["rows_to_remove"]
    result = cleaned(node, plan_id=reviewed["plan_id"])
    assert (result["via"], result["removed"]) == ("BUILTIN", REMOVED)
    assert result["planned"] == {**REMOVED, **reviewed["tables"]} == reviewed["tables"]
    assert [(item["origin"], item["bound"]) for item in result["origins"]] == [
        (1, 5_000_000_103),
        (2, 5_000_000_018),
        (3, 5_000_000_018),
    ]
    assert sum(cleaned(node)["removed"].values()) > 0


def test_a_plan_of_other_rules_limits_or_stores_is_not_executed(
    http: httpx.Client, node: NodeStore, shop: Shop, catalogs: Catalogs
) -> None:
    plan_id = plan(node).json()["plan_id"]
    problem(clean(node, plan_id=plan_id, rule="MANUAL"), 422, "PLAN_DIFFERS")
    other = recorded_nodes(http, catalogs, [2])[2]
    problem(clean(other, plan_id=plan_id), 422, "PLAN_NOT_USABLE")
    problem(clean(node, plan_id=shop.plan().json()["plan_id"]), 422, "PLAN_NOT_USABLE")
    etag = http.get(node.url).headers["etag"]
    http.patch(node.url, json={"limits": {"max_rows": 1_000}}, headers={"If-Match": etag})
    problem(clean(node, plan_id=plan_id), 412, "PLAN_NO_LONGER_HOLDS")


def test_limits_are_held_against_the_plan_before_the_first_row_goes(
    http: httpx.Client, catalogs: Catalogs
) -> None:
    for limits, words in (
        ({"max_rows": 358}, "max_rows: 359 rows would go, 358 may"),
        ({"max_fraction": 0.7}, "max_fraction: 0.7432 of 183 events would go, 0.7 may"),
    ):
        node = recorded_nodes(http, catalogs, [1])[1]
        etag = http.get(node.url).headers["etag"]
        assert http.patch(node.url, json={"limits": limits}, headers={"If-Match": etag}).status_code == 200
        before = node.loaded.rows()
        assert plan(node).json()["limits"]["exceeded"] == [words]
        job = wait_for(http, accepted(clean(node)))
        assert (job["state"], job["error"]["code"], job["error"]["detail"]) == (
            "FAILED",
            "LIMIT_EXCEEDED",
            words,
        )
        assert node.loaded.rows() == before


def test_a_plan_is_counted_where_a_limit_asks_for_it(http: httpx.Client, node: NodeStore) -> None:
    etag = http.get(node.url).headers["etag"]
    limits = {"limits": {"max_rows": 359}}
    assert http.patch(node.url, json=limits, headers={"If-Match": etag}).status_code == 200
    result = cleaned(node)
    assert_recorded(node.loaded)
    assert (result["removed"], result["planned_rows"]) == (REMOVED, 359)


def test_the_manual_rule_removes_only_syncs_and_none_leaves_the_log_alone(node: NodeStore) -> None:
    others = node.loaded.query(
        "select ev_origin, ev_seqno from sl_event where ev_type <> 'SYNC' order by 1, 2"
    )
    result = cleaned(node, rule="MANUAL", log_switch="NONE")
    assert result["removed"]["sl_event"] == 87 + 15 + 15
    assert result["log_switch"] == {"step": "NONE", "status": 3}
    assert log_status(node.loaded) == 3
    assert count(node.loaded, "sl_log_1") == 1_484
    kept = "select ev_origin, ev_seqno from sl_event where ev_type <> 'SYNC' order by 1, 2"
    assert node.loaded.query(kept) == others


def test_removed_events_are_kept_and_registered_as_an_archive(node: NodeStore) -> None:
    result = cleaned(node, archive={"format": "PARQUET"}, max_rows_in_tx=50)
    assert_recorded(node.loaded)
    kept = result["archive"]
    assert (kept["rows"], kept["counts"]) == (136, "EXACT")
    assert len(list(Path(kept["directory"]).glob("**/*.parquet"))) == kept["files"] == 5
    [job] = node.http.get(f"{node.url}/event-cleanups").json()["items"]
    archive = node.http.get(f"/v1/archives/{job['id']}").json()
    assert (archive["store"], archive["rows"]) == (node.id, 136)
    assert {item["table"] for item in archive["file_list"]} == {"sl_event"}


def test_without_an_age_the_parameter_of_the_store_decides(node: NodeStore, http: httpx.Client) -> None:
    etag = http.get(node.url).headers["etag"]
    change = {"parameters": {"cleanup_interval": "PT15M"}}
    assert http.patch(node.url, json=change, headers={"If-Match": etag}).status_code == 200
    job = wait_for(http, accepted(http.post(f"{node.url}/event-cleanups", json={})))
    result = job["result"]
    assert (result["interval"], result["interval_source"]) == ("PT15M", "STORE")
    before = datetime.fromisoformat(result["confirmed_before"])
    assert timedelta(minutes=14) < datetime.now(UTC) - before < timedelta(minutes=17)
    assert count(node.loaded, "sl_event") == 35  # all of its confirmations are days old


def test_a_node_that_never_confirmed_keeps_the_events_and_is_named(node: NodeStore) -> None:
    node.loaded.execute("delete from sl_confirm where con_origin = 1 and con_received = 3")
    shown = plan(node).json()
    assert shown["origins"][0]["held"] == {"why": "NEVER_CONFIRMED", "receiver": 3, "seqno": None}
    [hazard] = [item for item in shown["hazards"] if item["kind"] == "NEVER_CONFIRMED"]
    assert (hazard["origin"], hazard["receiver"], hazard["rows"]) == (1, 3, 102)
    result = cleaned(node)
    assert count(node.loaded, "sl_event where ev_origin = 1") == 142
    words = {item["code"]: item["detail"] for item in result["warnings"]}
    assert "node 3 has never confirmed any event of node 1" in words["HELD_NEVER_CONFIRMED"]
    assert "slon's own cleanup would" in words["HAZARD_NEVER_CONFIRMED"]


def test_a_status_that_a_rollback_left_is_healed_first_and_told(node: NodeStore) -> None:
    node.loaded.execute("select setval('sl_log_status', 0)")  # sl_log_2 counts as clean, and has 1361 rows
    result = cleaned(node)
    assert [item["code"] for item in result["warnings"]] == ["LOG_STATUS_HEALED"]
    assert result["log_switch"]["step"] == "BLOCKED"
    assert (log_status(node.loaded), count(node.loaded, "sl_log_2")) == (2, 1_361)


def test_the_clusters_lock_is_waited_for_by_the_name_of_its_holder(
    node: NodeStore, http: httpx.Client
) -> None:
    with node.loaded.raw(autocommit=False, application_name="slonik of somebody") as raw:
        raw.execute("lock table sl_config_lock in access exclusive mode")
        job_id = accepted(clean(node))
        job = wait_for(http, job_id, "WAITING")
        [reason] = job["waiting_on"]
        assert reason["kind"] == "CLUSTER_LOCKED"
        assert "slonik of somebody" in reason["ref"]
        assert count(node.loaded, "sl_event") == 183
        raw.rollback()
    job = wait_for(http, job_id)
    assert job["state"] == "SUCCEEDED", job
    assert_recorded(node.loaded)


@pytest.mark.parametrize("verb", ["pause", "abort"])
def test_a_stop_comes_between_two_units_and_nothing_goes_after_it(
    node: NodeStore, http: httpx.Client, verb: str
) -> None:
    job_id = slow_cleanup(node)
    _until(lambda: count(node.loaded, "sl_confirm") < 154)
    assert http.post(f"/v1/jobs/{job_id}:{verb}", json={}).status_code == 202
    job = wait_for(http, job_id, "PAUSED", "ABORTED")
    before = node.loaded.rows()
    Before.of().assert_accepted(node.loaded)
    at_work = (
        f"select count(*) from pg_stat_activity where application_name like '{job_id}%' and state <> 'idle'"
    )
    assert node.loaded.query(at_work) == [(0,)]
    removed = job["result"]["removed"]
    assert 0 < sum(removed.values()) < 359
    assert removed["sl_confirm"] == 154 - len(before["sl_confirm"])
    time.sleep(0.7)
    assert node.loaded.rows() == before
    if verb == "pause":
        assert http.post(f"/v1/jobs/{job_id}:resume", json={}).status_code == 200
        http.patch(f"/v1/jobs/{job_id}/throttle", json={})
        job = wait_for(http, job_id)
        assert (job["state"], job["result"]["removed"]) == ("SUCCEEDED", REMOVED)
        assert_recorded(node.loaded)


def test_two_cleanups_of_one_node_refuse_or_follow_each_other(node: NodeStore, http: httpx.Client) -> None:
    first = slow_cleanup(node)
    body = problem(clean(node), 409, "CONFLICTING_JOB")
    assert body["job_id"] == first
    second = accepted(clean(node, overlap="QUEUE"))
    waiting = wait_for(http, second, "WAITING")
    assert [(each["kind"], each["ref"]) for each in waiting["waiting_on"]] == [("JOB", first)]
    http.patch(f"/v1/jobs/{first}/throttle", json={})
    ends = [wait_for(http, job_id) for job_id in (first, second)]
    assert [end["state"] for end in ends] == ["SUCCEEDED", "SUCCEEDED"]
    assert_recorded(node.loaded, runs=2)


def test_a_cleanup_of_another_node_of_the_cluster_goes_beside_it(
    http: httpx.Client, catalogs: Catalogs
) -> None:
    nodes = recorded_nodes(http, catalogs, [1, 2])
    first = slow_cleanup(nodes[1])
    wait_for(http, first, "RUNNING")
    _until(lambda: count(nodes[1].loaded, "sl_confirm") < 154)
    second = accepted(clean(nodes[2]))
    assert wait_for(http, second)["state"] == "SUCCEEDED"
    assert http.get(f"/v1/jobs/{first}").json()["state"] == "RUNNING"
    http.post(f"/v1/jobs/{first}:abort", json={})
    wait_for(http, first)


def test_two_clusters_of_one_name_do_not_meet(http: httpx.Client, catalogs: Catalogs) -> None:
    name = new_name()
    stores = []
    for number in (1, 2):
        loaded = catalogs.load("fxa", 1, cluster=name)
        loaded.execute(f"update sl_path set pa_conninfo = pa_conninfo || ' application_name=c{number}'")
        stores.append(NodeStore(http, register(http, url=loaded.url, cluster=name).id, loaded))
    first = slow_cleanup(stores[0])
    wait_for(http, first, "RUNNING")
    assert cleaned(stores[1])["removed"] == REMOVED
    assert http.get(f"/v1/jobs/{first}").json()["state"] == "RUNNING"
    http.post(f"/v1/jobs/{first}:abort", json={})


def test_what_only_builtin_does_is_refused_with_native(node: NodeStore) -> None:
    answer = clean(node, via="NATIVE", rule="MANUAL", archive={"format": "PARQUET"}, log_switch="NONE")
    body = problem(answer, 422, "VIA_NEEDS_BUILTIN")
    assert pointers(body) == {"/rule", "/archive", "/log_switch"}


def test_native_without_the_clusters_functions_is_refused(node: NodeStore) -> None:
    body = problem(clean(node, via="NATIVE"), 409, "FUNCTIONS_MISSING")
    assert "BUILTIN does without" in body["detail"]


def test_ages_are_checked(node: NodeStore) -> None:
    problem(clean(node, interval="PT1H", confirmed_before=AT), 422, "INVALID_REQUEST")
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    body = problem(clean(node, confirmed_before=later), 422, "CONFIRMED_BEFORE_IN_THE_FUTURE")
    assert pointers(body) == {"/confirmed_before"}
    for interval in ("P366D", "-PT1S", "ten minutes", 600):
        problem(clean(node, interval=interval), 422, "INVALID_REQUEST")
    problem(clean(node, max_rows_in_tx=0), 422, "INVALID_REQUEST")


def test_other_stores_and_databases_are_refused(
    http: httpx.Client, shop: Shop, node: NodeStore, catalogs: Catalogs
) -> None:
    other = NodeStore(http, shop.id)
    problem(clean(other), 409, "STORE_KIND_WRONG")
    nobody = register(http, url=node.loaded.url, cluster="nobody")
    problem(clean(nobody), 409, "UNKNOWN_CLUSTER")
    problem(plan(nobody), 409, "UNKNOWN_CLUSTER")


def test_the_right_to_write_events_is_needed(
    node: NodeStore, service: ServiceProcess, make_token: Callable[..., str]
) -> None:
    with service.http(make_token("jobs:read", "stores:read", "purges:write")) as reader:
        problem(clean(NodeStore(reader, node.id)), 403, "SCOPE_MISSING")
        assert reader.get(f"{node.url}/event-cleanups").status_code == 200
    with service.http(make_token("events:write", "jobs:read")) as writer:
        assert clean(NodeStore(writer, node.id)).status_code == 202


def _until(condition: Callable[[], bool], *, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
