"""Slony-I: what is sent, and what comes back as values."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest
from lethe_client import (
    CleanupRequest,
    Confirmation,
    ConfirmationMatrix,
    ConfirmOutcome,
    Conflict,
    Event,
    EventWait,
    HeldBack,
    Lethe,
    LogBlocker,
    LogTable,
    PlanFailed,
    Precondition,
    RequestInvalid,
)

from tests.client.conftest import Script

EVENT = {
    "origin": 1,
    "seqno": 5000000007,
    "type": "SYNC",
    "created_at": "2026-11-20T08:00:00Z",
    "snapshot": "10:12:11",
    "data": ["a", None],
}
PAIR = {
    "origin": 1,
    "receiver": 3,
    "receiver_is_active": True,
    "state": "BEHIND",
    "confirmed_seqno": 5000000001,
    "confirmed_at": "2026-11-20T07:59:00Z",
    "last_seqno": 5000000007,
    "lag_events": 6,
    "lag": "PT1M",
}
NEVER = PAIR | {"state": "NEVER_CONFIRMED", "confirmed_seqno": None, "confirmed_at": None, "lag": None}
JOB = {"id": "job_1", "kind": "EVENT_WAIT", "state": "QUEUED", "store": "lab-1"}
PLAN = {"plan_id": "job_2", "rows": 9, "rows_to_remove": 4, "tables": {"sl_event": 4}, "via": "BUILTIN"}


def test_events_are_fetched_page_by_page_with_their_filters(lethe: Lethe, script: Script) -> None:
    later = EVENT | {"seqno": 5000000008}
    script.replies = [
        httpx.Response(200, json={"items": [EVENT], "next_page_token": "t"}),
        httpx.Response(200, json={"items": [later], "next_page_token": ""}),
    ]
    found = list(
        lethe.slony.events(
            "lab-1",
            origins=[1, 2],
            types=["SYNC"],
            from_seqno=5,
            created_before=datetime(2026, 11, 21, tzinfo=UTC),
        )
    )
    assert found == [
        Event(
            origin=1,
            seqno=seqno,
            type="SYNC",
            created_at=datetime(2026, 11, 20, 8, tzinfo=UTC),
            snapshot="10:12:11",
            data=("a", None),
        )
        for seqno in (5000000007, 5000000008)
    ]
    query = script.requests[1].url.params
    assert query.get_list("origin") == ["1", "2"]
    assert dict(query) == {
        "origin": "1",
        "type": "SYNC",
        "from_seqno": "5",
        "created_before": "2026-11-21T00:00:00+00:00",
        "page_size": "200",
        "page_token": "t",
    }


def test_one_event_tells_who_has_confirmed_it(lethe: Lethe, script: Script) -> None:
    confirmed = [{"receiver": 2, "seqno": 5000000009, "at": "2026-11-20T08:00:01Z"}]
    body = EVENT | {"confirmed_by": confirmed, "outstanding": [3], "is_confirmed_by_all": False}
    script.replies = [httpx.Response(200, json=body)]
    found = lethe.slony.event("lab-1", 1, 5000000007)
    assert script.requests[0].url.path == "/v1/stores/lab-1/events/1/5000000007"
    assert (list(found.confirmed_by), found.outstanding, found.is_confirmed_by_all) == (
        confirmed,
        (3,),
        False,
    )


def test_matrix_keeps_who_never_confirmed(lethe: Lethe, script: Script) -> None:
    body = {"local_node": 1, "as_of": "2026-11-20T08:00:10Z", "items": [PAIR, NEVER]}
    script.replies = [httpx.Response(200, json=body)]
    assert lethe.slony.confirmations("lab-1") == ConfirmationMatrix(
        local_node=1,
        as_of=datetime(2026, 11, 20, 8, 0, 10, tzinfo=UTC),
        items=(
            Confirmation(
                origin=1,
                receiver=3,
                state="BEHIND",
                confirmed_seqno=5000000001,
                confirmed_at=datetime(2026, 11, 20, 7, 59, tzinfo=UTC),
                last_seqno=5000000007,
                lag_events=6,
                lag=timedelta(minutes=1),
            ),
            Confirmation(origin=1, receiver=3, state="NEVER_CONFIRMED", last_seqno=5000000007, lag_events=6),
        ),
    )


def test_sync_and_confirmation_are_sent_once_with_a_key(lethe: Lethe, script: Script) -> None:
    outcome = {
        "origin": 1,
        "receiver": 3,
        "seqno": 7,
        "changed": True,
        "confirmed_seqno": 7,
        "is_forced": True,
    }
    script.replies = [
        httpx.ReadError("gone"),
        httpx.Response(201, json=EVENT),
        httpx.Response(200, json=outcome),
    ]
    assert lethe.slony.sync("lab-1").seqno == 5000000007
    done = lethe.slony.confirm("lab-1", origin=1, receiver=3, seqno=7, force=True, reason="rebuilt")
    assert done == ConfirmOutcome(
        origin=1, receiver=3, seqno=7, changed=True, confirmed_seqno=7, is_forced=True
    )
    assert script.bodies() == [
        {"type": "SYNC"},
        {"type": "SYNC"},
        {"origin": 1, "receiver": 3, "seqno": 7, "force": True, "reason": "rebuilt"},
    ]
    first, again, other = script.headers("idempotency-key")
    assert first == again != other


def test_a_sync_where_one_is_due_is_a_job(lethe: Lethe, script: Script) -> None:
    script.replies = [httpx.Response(202, json=JOB) for _ in range(2)]
    lethe.slony.sync_if_older("lab-1", interval="PT5M", reason="its slon is down")
    lethe.slony.sync_if_older("lab-1")
    assert {request.url.path for request in script.requests} == {"/v1/stores/lab-1/event-syncs"}
    assert script.bodies() == [{"interval": "PT5M", "reason": "its slon is down"}, {}]


def test_confirmation_that_the_receiver_does_not_hold_is_a_conflict(lethe: Lethe, script: Script) -> None:
    script.replies = [httpx.Response(409, json={"code": "NOT_PROCESSED_BY_RECEIVER", "detail": "d"})]
    with pytest.raises(Conflict) as caught:
        lethe.slony.confirm("lab-1", origin=1, receiver=3, seqno=7)
    assert caught.value.code == "NOT_PROCESSED_BY_RECEIVER"
    assert script.bodies() == [{"origin": 1, "receiver": 3, "seqno": 7}]


def test_jobs_are_asked_for_without_what_was_not_said(lethe: Lethe, script: Script) -> None:
    script.replies = [httpx.Response(202, json=JOB) for _ in range(3)]
    lethe.slony.wait("lab-1", EventWait(origin=1, wait_on=2, timeout="PT0S"))
    before = datetime(2026, 11, 20, tzinfo=UTC)
    lethe.slony.cleanup(
        "lab-1", CleanupRequest(confirmed_before=before, via="BUILTIN", archive=True, rows_per_s=5.0)
    )
    lethe.slony.switch_log("lab-1", action="FINISH", timeout="PT0S")
    assert [request.url.path for request in script.requests] == [
        "/v1/stores/lab-1/events:wait",
        "/v1/stores/lab-1/event-cleanups",
        "/v1/stores/lab-1/log-switches",
    ]
    assert script.bodies() == [
        {"origin": 1, "confirmed": "ALL", "wait_on": 2, "timeout": "PT0S"},
        {
            "confirmed_before": "2026-11-20T00:00:00+00:00",
            "via": "BUILTIN",
            "archive": {"format": "PARQUET"},
            "throttle": {"rows_per_s": 5.0},
        },
        {"action": "FINISH", "timeout": "PT0S"},
    ]


def test_plan_of_a_cleanup_that_takes_longer_is_fetched_from_its_job(lethe: Lethe, script: Script) -> None:
    queued = {"id": "job_2", "kind": "PLAN", "state": "QUEUED"}
    script.replies = [
        httpx.Response(202, json=queued),
        httpx.Response(200, json=queued | {"state": "SUCCEEDED", "result": PLAN}),
    ]
    plan = lethe.slony.plan_cleanup("lab-1", CleanupRequest(interval="PT10M"))
    assert (plan.plan_id, plan.rows, plan.rows_to_remove, plan.tables) == ("job_2", 9, 4, {"sl_event": 4})
    assert dict(script.requests[0].url.params) == {"validate_only": "true"}
    script.replies = [
        httpx.Response(202, json=queued),
        httpx.Response(200, json=queued | {"state": "FAILED", "error": {"code": "UNKNOWN_CLUSTER"}}),
    ]
    with pytest.raises(PlanFailed):
        lethe.slony.plan_cleanup("lab-1", CleanupRequest())


def test_precondition_is_asked_with_the_nodes_that_it_is_about(lethe: Lethe, script: Script) -> None:
    body = {"met": False, "command": "SUBSCRIBE_SET", "as_program": False, "missing": [{"node": 2}]}
    script.replies = [httpx.Response(200, json=body)]
    found = lethe.slony.precondition("lab-1", "SUBSCRIBE_SET", provider=2, receiver=3)
    assert found == Precondition(met=False, command="SUBSCRIBE_SET", missing=({"node": 2},))
    assert script.bodies() == [{"command": "SUBSCRIBE_SET", "provider": 2, "receiver": 3}]
    assert script.headers("idempotency-key") == [None]


def test_ready_yields_what_holds_it_until_it_is_met(lethe: Lethe, script: Script) -> None:
    fixed = [{"what": "CONFIG", "origin": 1, "seqno": 7, "type": "STORE_SET"}]
    held = {"node": 2, "why": "BEHIND", "detail": "d", "advice": "a"}
    unmet = {"met": False, "command": "CREATE_SET", "awaited": fixed, "held_by": [held]}
    script.replies = [
        httpx.Response(200, json=each) for each in (unmet, unmet | {"met": True, "held_by": []})
    ]
    first, last = lethe.slony.ready("lab-1", "CREATE_SET", timeout_s=60, origin=1)
    assert (first.met, first.held_by) == (False, (HeldBack(node=2, why="BEHIND", detail="d", advice="a"),))
    assert (last.met, last.held_by, last.problem) == (True, (), None)
    body = {"command": "CREATE_SET", "origin": 1}
    assert script.bodies() == [body, body | {"awaited": fixed}]
    assert script.headers("prefer") == ["wait=10", "wait=10"]


def test_ready_tells_a_problem_that_may_pass_and_raises_one_that_does_not(
    lethe: Lethe, script: Script
) -> None:
    away = {"code": "TARGET_UNREACHABLE", "title": "t", "detail": "d", "retryable": True}
    wrong = {"code": "UNKNOWN_NODE", "title": "t", "detail": "d", "retryable": False}
    attempts = lethe._transport.retries.attempts
    script.replies = [httpx.Response(503, json=away)] * attempts + [httpx.Response(422, json=wrong)]
    waited = lethe.slony.ready("lab-1", "CREATE_SET", origin=9)
    assert (next(waited).problem or "").startswith("TARGET_UNREACHABLE")
    with pytest.raises(RequestInvalid):
        next(waited)


def test_log_status_names_tables_and_sessions(lethe: Lethe, script: Script) -> None:
    body = {
        "status": 2,
        "active": "sl_log_1",
        "other": "sl_log_2",
        "is_switching": True,
        "tables": [
            {"name": "sl_log_1", "role": "ACTIVE", "rows_estimate": 7, "bytes": 8192, "is_empty": False}
        ],
        "origins": [{"origin": 1, "is_drained": False, "reason": "NOT_DRAINED"}],
        "blockers": [
            {"pid": 4711, "application": "psql", "user": "app", "transaction_age": "PT5M", "has_lock": True}
        ],
    }
    script.replies = [httpx.Response(200, json=body)]
    found = lethe.slony.log_status("lab-1")
    assert script.requests[0].url.path == "/v1/stores/lab-1/log-switches/status"
    assert (found.status, found.is_switching, found.needs_healing) == (2, True, False)
    assert found.tables == (
        LogTable(name="sl_log_1", role="ACTIVE", rows_estimate=7, bytes=8192, is_empty=False),
    )
    age = timedelta(minutes=5)
    assert found.blockers == (
        LogBlocker(pid=4711, application="psql", user="app", transaction_age=age, has_lock=True),
    )


def test_health_of_a_node_and_of_a_cluster_are_values(lethe: Lethe, script: Script) -> None:
    finding = {
        "code": "LOG_TABLE_LARGE",
        "severity": "WARNING",
        "node": 1,
        "seen_by": ["lab-1"],
        "detail": "sl_log_1 has about 300,000 rows at node 1",
        "advice": "Look.",
        "measured": 300000.0,
        "limit": 200000.0,
        "unit": "ROWS",
    }
    node = {
        "store": "lab-1",
        "node": 1,
        "status": "WARNING",
        "lag": "PT4S",
        "table_rows": {"sl_log_1": 300000},
    }
    body = {"cluster": "lab", "status": "WARNING", "nodes": [node], "findings": [finding]}
    script.replies = [httpx.Response(200, json=body)] * 2
    found = lethe.slony.health("lab-1")
    assert found == lethe.slony.cluster_health("lab")
    assert (found.status, found.nodes[0].lag, found.nodes[0].table_rows) == (
        "WARNING",
        timedelta(seconds=4),
        {"sl_log_1": 300000},
    )
    assert (found.findings[0].seen_by, found.findings[0].limit) == (("lab-1",), 200000.0)
    paths = [each.url.raw_path.decode() for each in script.requests]
    assert paths == ["/v1/stores/lab-1/slony-health", "/v1/slony-health?cluster=lab"]
