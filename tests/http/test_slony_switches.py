"""Log switches over HTTP: started, waited for, ended only where everybody has every row."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from app.kit.durations import parse_duration
from tests.http.problem import pointers, problem
from tests.http.service_process import ServiceProcess
from tests.http.shop import Shop, accepted, wait_for
from tests.http.slony_cleaning import catch_up, cleaned, count, fall_behind, log_status, switch, switched
from tests.http.slony_nodes import NodeStore, recorded_nodes
from tests.spark.events.catalogs import Catalogs

ROWS_1, ROWS_2 = 1_484, 1_361


@pytest.fixture(scope="session")
def service(sqlite_service: ServiceProcess) -> ServiceProcess:
    """One kind of metadata is enough: the log tables lie at the target."""
    return sqlite_service


@pytest.fixture
def node(http: httpx.Client, catalogs: Catalogs) -> NodeStore:
    """Node 1 while node 3 was down: sl_log_1 is to be emptied, and its rows are not confirmed by all yet."""
    return recorded_nodes(http, catalogs, [1])[1]


def status_of(node: NodeStore) -> dict[str, Any]:
    answer = node.get("log-switches/status")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_the_status_tells_which_table_is_held_and_by_what(node: NodeStore) -> None:
    shown = status_of(node)
    assert (shown["store"], shown["local_node"], shown["status"]) == (node.id, 1, 3)
    assert (shown["active"], shown["other"], shown["is_switching"]) == ("sl_log_2", "sl_log_1", True)
    assert [(item["name"], item["role"], item["is_empty"]) for item in shown["tables"]] == [
        ("sl_log_2", "ACTIVE", False),
        ("sl_log_1", "OTHER", False),
    ]
    [origin] = shown["origins"]
    assert (origin["origin"], origin["is_drained"], origin["reason"]) == (1, False, "NOT_DRAINED")
    assert (shown["needs_healing"], shown["blockers"]) == (False, [])


def test_a_full_switch_waits_holding_nothing_and_ends_by_itself_once_every_receiver_has_caught_up(
    node: NodeStore, http: httpx.Client
) -> None:
    # It waited for a cleanup that somebody else had to make: `switch-log` in the order of the README ended
    # with exit 75, though every receiver had confirmed every row.
    fall_behind(node)
    job_id = accepted(switch(node, "FULL", reason="sl_log_1 is large"))
    job = wait_for(http, job_id, "WAITING")
    [reason] = job["waiting_on"]
    assert (reason["kind"], reason["until"] is not None) == ("LOG_NOT_DRAINED", True)
    assert "sl_log_1 has rows of node 1" in reason["ref"]
    of_the_job = f"select count(*) from pg_stat_activity where application_name like '{job_id}%'"
    _until(lambda: node.loaded.query(of_the_job) == [(0,)])
    assert count(node.loaded, "sl_log_1") == ROWS_1
    result = cleaned(node, log_switch="NONE")  # it is not refused: the switch holds no claim
    assert result["log_switch"] == {"step": "NONE", "status": 3}
    time.sleep(2)
    assert http.get(f"/v1/jobs/{job_id}").json()["state"] in ("WAITING", "RUNNING")
    assert count(node.loaded, "sl_log_1") == ROWS_1
    before = count(node.loaded, "sl_event")
    catch_up(node)
    job = wait_for(http, job_id)
    assert count(node.loaded, "sl_event") == before  # no cleanup was needed, and none was made
    assert job["state"] == "SUCCEEDED", job
    done = job["result"]
    assert (done["outcome"], done["emptied"], done["started"]) == ("FINISHED", "sl_log_1", False)
    assert (done["status_before"], done["status"], done["active"]) == (3, 1, "sl_log_2")
    assert parse_duration(done["waited_for"]) < timedelta(minutes=2)
    assert (log_status(node.loaded), count(node.loaded, "sl_log_1")) == (1, 0)
    assert count(node.loaded, "sl_log_2") == ROWS_2


def test_start_makes_writers_change_and_finish_gives_up_when_its_time_is_over(node: NodeStore) -> None:
    assert switched(node, "START")["outcome"] == "ALREADY_SWITCHING"
    cleaned(node)
    assert log_status(node.loaded) == 1
    done = switched(node, "START")
    assert (done["outcome"], done["started"], done["status_before"], done["status"]) == (
        "STARTED",
        True,
        1,
        2,
    )
    job = wait_for(node.http, accepted(switch(node, "FINISH", timeout="PT0S")))
    assert (job["state"], job["error"]["code"]) == ("FAILED", "LOG_SWITCH_TIMEOUT")
    assert "sl_log_2 has rows of node 1" in job["error"]["detail"]
    assert (job["result"]["outcome"], job["result"]["status"]) == ("TIMED_OUT", 2)
    assert (log_status(node.loaded), count(node.loaded, "sl_log_2")) == (2, ROWS_2)


def test_finish_without_a_switch_has_nothing_to_do(node: NodeStore) -> None:
    cleaned(node)
    done = switched(node, "FINISH")
    assert (done["outcome"], done["emptied"], done["status"]) == ("NOTHING_TO_FINISH", None, 1)


def test_an_open_writer_is_named_and_nobody_queues_behind_the_switch(
    node: NodeStore, http: httpx.Client
) -> None:
    cleaned(node, log_switch="NONE")
    with node.loaded.raw(autocommit=False, application_name="the shop") as raw:
        raw.execute("lock table sl_log_1 in row exclusive mode")
        job_id = accepted(switch(node, "FINISH"))
        [reason] = wait_for(http, job_id, "WAITING")["waiting_on"]
        assert reason["kind"] == "LOG_TABLE_LOCKED"
        assert "the shop" in reason["ref"]
        assert [item["application"] for item in status_of(node)["blockers"] if item["has_lock"]] == [
            "the shop"
        ]
        for _ in range(20):  # as another writer would: it must never wait
            with node.loaded.raw(autocommit=False) as other:
                other.execute("set local lock_timeout = '400ms'")
                other.execute("lock table sl_log_1 in row exclusive mode")
                other.rollback()
            time.sleep(0.05)
        assert count(node.loaded, "sl_log_1") == ROWS_1
        raw.rollback()
    assert wait_for(http, job_id)["result"]["outcome"] == "FINISHED"
    assert count(node.loaded, "sl_log_1") == 0


def test_an_origin_without_any_sync_is_never_truncated(node: NodeStore) -> None:
    cleaned(node, log_switch="NONE")
    node.loaded.execute("delete from sl_event where ev_origin = 1 and ev_type = 'SYNC'")
    [origin] = status_of(node)["origins"]
    assert (origin["reason"], origin["oldest_sync"]) == ("NO_SYNC", None)
    job = wait_for(node.http, accepted(switch(node, "FULL", timeout="PT2S")))
    assert (job["state"], job["error"]["code"]) == ("FAILED", "LOG_SWITCH_TIMEOUT")
    assert "there is no SYNC" in job["error"]["detail"]
    assert (log_status(node.loaded), count(node.loaded, "sl_log_1")) == (3, ROWS_1)


def test_a_status_that_a_rollback_left_is_healed_before_anything_else(node: NodeStore) -> None:
    cleaned(node)
    node.loaded.execute("select setval('sl_log_status', 0)")  # sl_log_2 counts as clean, and has rows
    assert status_of(node)["needs_healing"] is True
    job = wait_for(node.http, accepted(switch(node, "FULL", timeout="PT0S")))
    assert (job["state"], job["error"]["code"]) == ("FAILED", "LOG_SWITCH_TIMEOUT")
    assert [item["code"] for item in job["result"]["warnings"]] == ["LOG_STATUS_HEALED"]
    assert (log_status(node.loaded), count(node.loaded, "sl_log_2")) == (2, ROWS_2)


def test_the_clusters_lock_is_waited_for_with_a_limit(node: NodeStore, http: httpx.Client) -> None:
    cleaned(node)
    with node.loaded.raw(autocommit=False, application_name="slonik of somebody") as raw:
        raw.execute("lock table sl_config_lock in access exclusive mode")
        job = wait_for(http, accepted(switch(node, "START", timeout="PT1S")))
        assert (job["state"], job["error"]["code"]) == ("FAILED", "LOG_SWITCH_TIMEOUT")
        assert "slonik of somebody" in job["error"]["detail"]
        job_id = accepted(switch(node, "START"))
        [reason] = wait_for(http, job_id, "WAITING")["waiting_on"]
        assert reason["kind"] == "CLUSTER_LOCKED"
        raw.rollback()
    assert wait_for(http, job_id)["result"]["outcome"] == "STARTED"
    assert log_status(node.loaded) == 2


def test_a_waiting_switch_is_paused_resumed_and_aborted(node: NodeStore, http: httpx.Client) -> None:
    fall_behind(node)
    job_id = accepted(switch(node, "FULL"))
    wait_for(http, job_id, "WAITING")
    http.post(f"/v1/jobs/{job_id}:pause", json={})
    wait_for(http, job_id, "PAUSED")
    http.post(f"/v1/jobs/{job_id}:resume", json={})
    wait_for(http, job_id, "WAITING")
    http.post(f"/v1/jobs/{job_id}:abort", json={})
    wait_for(http, job_id, "ABORTED")
    assert (log_status(node.loaded), count(node.loaded, "sl_log_1")) == (3, ROWS_1)


def test_two_switches_of_one_node_are_refused(node: NodeStore, http: httpx.Client) -> None:
    fall_behind(node)
    job_id = accepted(switch(node, "FULL"))
    body = problem(switch(node, "START"), 409, "CONFLICTING_JOB")
    assert body["job_id"] == job_id
    http.post(f"/v1/jobs/{job_id}:abort", json={})
    wait_for(http, job_id)
    listed = node.get("log-switches").json()["items"]
    assert [(item["id"], item["kind"], item["params"]["action"]) for item in listed] == [
        (job_id, "LOG_SWITCH", "FULL")
    ]


def test_bad_requests_are_refused(node: NodeStore, http: httpx.Client, shop: Shop) -> None:
    assert pointers(problem(switch(node, "BOTH"), 422, "INVALID_REQUEST")) == {"/action"}
    for timeout in ("PT25H", "-PT1S", 60, "soon"):
        body = problem(switch(node, "FULL", timeout=timeout), 422, "INVALID_REQUEST")
        assert pointers(body) == {"/timeout"}
    other = NodeStore(http, shop.id)
    problem(switch(other, "FULL"), 409, "STORE_KIND_WRONG")
    problem(other.get("log-switches/status"), 409, "STORE_KIND_WRONG")


def test_the_right_to_write_events_is_needed(
    node: NodeStore, service: ServiceProcess, make_token: Callable[..., str]
) -> None:
    with service.http(make_token("jobs:read", "stores:read", "purges:write")) as reader:
        problem(switch(NodeStore(reader, node.id), "START"), 403, "SCOPE_MISSING")
        assert reader.get(f"{node.url}/log-switches/status").status_code == 200


def _until(condition: Callable[[], bool], *, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
