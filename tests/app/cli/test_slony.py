"""`lethe slony`: the matrix and the log tables for people, jobs and their exit codes for scripts."""

from typing import Any

import pytest

CONFIRMATIONS = "GET /v1/stores/lab-1/confirmations"
LOG_STATUS = "GET /v1/stores/lab-1/log-switches/status"
BASE = 5_000_000_000


def pair(origin: int, receiver: int, behind: int | None, **more: Any) -> dict[str, Any]:
    state = "NEVER_CONFIRMED" if behind is None else "BEHIND" if behind else "CURRENT"
    return {
        "origin": origin,
        "receiver": receiver,
        "receiver_is_active": True,
        "state": state,
        "confirmed_seqno": None if behind is None else BASE + 142 - behind,
        "confirmed_at": None,
        "last_seqno": BASE + 142,
        "lag_events": 142 if behind is None else behind,
        "lag": None if behind is None else "PT1H2M3S" if behind else "PT0S",
        **more,
    }


MATRIX = {
    "local_node": 1,
    "as_of": "2026-11-20T08:10:00Z",
    "items": [
        pair(1, 2, 0),
        pair(1, 3, 1029),
        pair(2, 1, 0),
        pair(2, 3, None),
        pair(3, 1, 0),
        pair(3, 2, 0),
    ],
}
LOGS = {
    "status": 3,
    "active": "sl_log_2",
    "other": "sl_log_1",
    "is_switching": True,
    "needs_healing": False,
    "tables": [
        {"name": "sl_log_2", "role": "ACTIVE", "rows_estimate": 1484, "bytes": 303104, "is_empty": False},
        {"name": "sl_log_1", "role": "OTHER", "rows_estimate": None, "bytes": 270336, "is_empty": False},
    ],
    "origins": [
        {
            "origin": 1,
            "oldest_sync": BASE + 113,
            "xmin": 2851,
            "undrained_txid": 2860,
            "is_drained": False,
            "reason": "NOT_DRAINED",
            "receiver": None,
        }
    ],
    "blockers": [
        {
            "pid": 4711,
            "application": "psql",
            "user": "app",
            "state": "idle in transaction",
            "transaction_age": "PT2H",
            "backend_xmin": 2855,
            "has_lock": True,
        }
    ],
}


def job(kind: str, state: str, **more: object) -> dict[str, object]:
    return {"id": "job_1", "kind": kind, "store": "lab-1", "state": state, **more}


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


def test_status_is_a_matrix_and_the_two_log_tables(service, lethe) -> None:
    service.on(CONFIRMATIONS, (200, MATRIX))
    service.on(LOG_STATUS, (200, LOGS))
    run = lethe("slony", "status", "lab-1")
    assert run.code == 0
    shown = lines(run.out)
    assert ["origin", "newest", "event", "node", "1", "node", "2", "node", "3"] in shown
    assert ["node", "1", "5000000142", "-", "all", "1,029", "behind,", "1:02:03"] in shown
    assert ["node", "2", "5000000142", "all", "-", "never"] in shown
    assert ["node", "3", "5000000142", "all", "all", "-"] in shown
    assert ["sl_log_2", "written", "1,484", "303,104"] in shown
    assert ["sl_log_1", "to", "be", "emptied", "-", "270,336"] in shown
    assert ["node", "1", "5000000113", "2851", "2860", "no", "NOT_DRAINED", "-"] in shown
    assert ["4711", "psql", "app", "idle", "in", "transaction", "2:00:00", "2855", "yes"] in shown


def test_status_as_json_is_what_the_service_said(service, lethe) -> None:
    service.on(CONFIRMATIONS, (200, MATRIX))
    service.on(LOG_STATUS, (200, LOGS))
    run = lethe("slony", "status", "lab-1", "--json")
    assert (run.code, run.json()) == (0, {"confirmations": MATRIX, "log_status": LOGS})


def test_status_names_inactive_nodes_and_logs_that_are_not_read(service, lethe) -> None:
    items = [pair(1, 2, 0, receiver_is_active=False), pair(2, 1, 0)]
    service.on(CONFIRMATIONS, (200, MATRIX | {"items": items}))
    healing = {"status": 0, "is_switching": False, "needs_healing": True, "origins": [], "blockers": []}
    service.on(LOG_STATUS, (200, LOGS | healing))
    run = lethe("slony", "status", "lab-1")
    assert run.code == 0
    assert "node 2 (inactive)" in run.out
    assert ["sl_log_1", "clean", "-", "270,336"] in lines(run.out)
    assert "warning: sl_log_1 counts as clean and has rows" in run.err


HEALTH = {
    "cluster": "lab",
    "status": "CRITICAL",
    "nodes": [
        {
            "store": "lab-1",
            "node": 1,
            "status": "CRITICAL",
            "as_of": "2026-11-20T08:41:05Z",
            "lag": "PT41M17.3S",
            "sync_age": "PT4.2S",
            "transaction_age": None,
            "table_rows": {"sl_log_1": 1484},
        },
        {"store": "lab-2", "node": 2, "status": "UNKNOWN", "as_of": None, "lag": None, "table_rows": {}},
    ],
    "findings": [
        {
            "code": "RECEIVER_LAGS",
            "severity": "CRITICAL",
            "node": 3,
            "seen_by": ["lab-1"],
            "detail": "node 3 | is late",
            "advice": "Start its slon.",
        },
        {
            "code": "NODE_NOT_ASKED",
            "severity": "UNKNOWN",
            "node": None,
            "seen_by": [],
            "detail": "no",
            "advice": "Ask.",
        },
    ],
}


def test_health_is_one_line_for_the_monitor_and_one_for_each_finding(service, lethe) -> None:
    service.on("GET /v1/slony-health", (200, HEALTH))
    run = lethe("slony", "health", "--cluster", "lab")
    assert run.code == 2
    assert run.out.splitlines() == [
        "SLONY CRITICAL - cluster lab, 2 node(s) asked: node 3 / is late (and 1 more) | findings=2;;;0"
        " lab-1_lag=2477.3s;;;0 lab-1_sync_age=4.2s;;;0 lab-1_sl_log_1=1484;;;0",
        "CRITICAL RECEIVER_LAGS node 3 (seen by lab-1): node 3 / is late. Start its slon.",
        "UNKNOWN NODE_NOT_ASKED: no. Ask.",
    ]
    assert service.asked[0][1].endswith("cluster=lab")
    run = lethe("slony", "health", "--cluster", "lab", "--json")
    assert (run.code, run.json()) == (2, HEALTH)


@pytest.mark.parametrize(
    ("status", "code"), [("OK", 0), ("WARNING", 1), ("CRITICAL", 2), ("UNKNOWN", 3), ("NEWER", 3)]
)
def test_health_ends_with_the_code_of_its_status(service, lethe, status: str, code: int) -> None:
    found = {"cluster": "lab", "status": status, "nodes": [], "findings": []}
    service.on("GET /v1/stores/lab-1/slony-health", (200, found))
    run = lethe("slony", "health", "lab-1")
    assert (run.code, run.out.split(" - ")[0]) == (code, f"SLONY {status}")


def test_health_of_what_cannot_be_asked_is_unknown(service, lethe) -> None:
    refused = {"code": "STORE_NOT_FOUND", "detail": "no such store", "retryable": False}
    service.on("GET /v1/stores/lab-1/slony-health", (404, refused))
    run = lethe("slony", "health", "lab-1")
    said = "SLONY UNKNOWN - STORE_NOT_FOUND: no such store Which there are: lethe store list\n"
    assert (run.code, run.out) == (3, said)
    run = lethe("slony", "health", "lab-1", "--json")
    assert (run.code, run.json()["code"]) == (3, "STORE_NOT_FOUND")
    run = lethe("slony", "health", "lab-1", "--url", "http://127.0.0.1:9")
    assert run.code == 3
    assert run.out.startswith("SLONY UNKNOWN - SERVICE_UNREACHABLE: ")


def test_events_are_asked_with_their_filters_and_listed(service, lethe) -> None:
    event = {
        "origin": 1,
        "seqno": BASE + 16,
        "type": "SUBSCRIBE_SET",
        "created_at": "2026-11-20T07:59:29.263448Z",
        "snapshot": "867:867:",
        "data": ["1", "1", "2", "t", None, "f", None, None],
    }
    service.on("GET /v1/stores/lab-1/events", (200, {"items": [event], "next_page_token": ""}))
    arguments = ("--origin", "1", "--type", "SUBSCRIBE_SET", "--from-seqno", "5", "--upto-seqno", "9")
    run = lethe("slony", "events", "lab-1", *arguments, "--created-after", "2026-11-20T07:00:00Z")
    assert run.code == 0
    row = ["1", "5000000016", "SUBSCRIBE_SET", "2026-11-20", "07:59:29Z", "1", "1", "2", "t", "-", "f"]
    assert row in lines(run.out)
    query = service.asked[0][1]
    assert "origin=1&type=SUBSCRIBE_SET&from_seqno=5&upto_seqno=9&created_after=2026-11-20T07" in query
    assert lethe("slony", "events", "lab-1", "--json").json() == [event]


def test_one_event_is_shown_with_who_has_it(service, lethe) -> None:
    body = {
        "origin": 1,
        "seqno": BASE + 120,
        "type": "SYNC",
        "created_at": "2026-11-20T08:00:00Z",
        "snapshot": "1:2:",
        "data": [],
        "confirmed_by": [{"receiver": 2, "seqno": BASE + 141, "at": "2026-11-20T08:00:01Z"}],
        "outstanding": [3],
        "is_confirmed_by_all": False,
    }
    service.on(f"GET /v1/stores/lab-1/events/1/{BASE + 120}", (200, body))
    run = lethe("slony", "event", "lab-1", "1", str(BASE + 120))
    assert run.code == 0
    assert ["outstanding", "3"] in lines(run.out)
    assert ["2", "5000000141", "2026-11-20T08:00:01Z"] in lines(run.out)


def test_sync_and_confirmation_tell_what_they_did(service, lethe) -> None:
    made = {
        "origin": 1,
        "seqno": BASE + 143,
        "type": "SYNC",
        "created_at": "2026-11-20T08:00:00Z",
        "data": [],
    }
    service.on("POST /v1/stores/lab-1/events", (201, made))
    assert "Event 1,5000000143 is made." in lethe("slony", "sync", "lab-1").out
    done = {"origin": 1, "receiver": 3, "seqno": 9, "changed": True, "confirmed_seqno": 9, "is_forced": False}
    service.on("POST /v1/stores/lab-1/confirmations", (200, done))
    options = ("--origin", "1", "--receiver", "3", "--seqno", "9")
    run = lethe("slony", "confirm", "lab-1", *options, "--json")
    assert (run.code, run.json()) == (0, done)
    asked = service.bodies("POST /v1/stores/lab-1/confirmations")
    assert asked == [{"origin": 1, "receiver": 3, "seqno": 9}]
    refused = {"code": "NOT_PROCESSED_BY_RECEIVER", "detail": "d", "retryable": False}
    service.on("POST /v1/stores/lab-1/confirmations", (409, refused))
    assert lethe("slony", "confirm", "lab-1", *options).code == 1


WAIT = "POST /v1/stores/lab-1/events:wait"
LATE = {
    "wait_on": 1,
    "is_satisfied": False,
    "outstanding": [
        {"origin": 1, "seqno": BASE + 142, "receiver": 3, "confirmed_seqno": BASE + 113, "why": "BEHIND"}
    ],
}


def ending(service, kind: str, state: str, **more: object) -> None:
    service.on("GET /v1/jobs/job_1", (200, job(kind, state, **more), {"ETag": '"2"'}))


def test_wait_is_asked_in_slonik_s_words_and_ends_well(service, lethe) -> None:
    service.on(WAIT, (202, job("EVENT_WAIT", "QUEUED")))
    ending(service, "EVENT_WAIT", "SUCCEEDED", result={"wait_on": 2, "is_satisfied": True, "outstanding": []})
    run = lethe("slony", "wait", "lab-1", "--origin", "1", "--wait-on", "2", "--timeout", "90.5")
    assert run.code == 0
    assert service.bodies(WAIT) == [
        {
            "origin": 1,
            "confirmed": "ALL",
            "wait_on": 2,
            "timeout": "PT90.5S",
            "reason": "asked for on the command line",
        }
    ]
    assert ["all", "have", "confirmed", "yes"] in lines(run.out)


def test_wait_that_takes_too_long_ends_with_75_and_says_who_is_missing(service, lethe) -> None:
    service.on(WAIT, (202, job("EVENT_WAIT", "QUEUED")))
    error = {"code": "WAIT_TIMEOUT", "title": "t", "detail": "node 3", "retryable": True}
    ending(service, "EVENT_WAIT", "FAILED", error=error, result=LATE)
    run = lethe("slony", "wait", "lab-1")
    assert run.code == 75
    assert ["1", "5000000142", "3", "5000000113", "BEHIND"] in lines(run.out)
    assert "WAIT_TIMEOUT: node 3" in run.err
    assert service.bodies(WAIT)[0]["timeout"] == "PT600S"
    again = lethe("slony", "wait", "lab-1", "--timeout", "0", "--json")
    assert (again.code, again.json()["result"]) == (75, LATE)
    assert service.bodies(WAIT)[1]["timeout"] == "PT0S"


def test_wait_that_fails_otherwise_ends_with_1(service, lethe) -> None:
    service.on(WAIT, (202, job("EVENT_WAIT", "QUEUED")))
    error = {"code": "ORIGIN_GONE", "title": "t", "detail": "d", "retryable": False}
    ending(service, "EVENT_WAIT", "FAILED", error=error)
    assert lethe("slony", "wait", "lab-1", "--origin", "1").code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("wait", "lab-1", "--origin", "everybody"),
        ("wait", "lab-1", "--confirmed", "0"),
        ("wait", "lab-1", "--seqno", "7"),
        ("wait", "lab-1", "--timeout", "-1"),
        ("cleanup", "lab-1", "--interval", "PT1M", "--confirmed-before", "2026-11-20T08:00:00Z"),
        ("cleanup", "lab-1", "--confirmed-before", "2026-11-20T08:00:00"),
        ("cleanup", "lab-1", "--via", "SLON"),
        ("switch-log", "lab-1", "--action", "ROTATE"),
        ("confirm", "lab-1", "--origin", "1", "--receiver", "2", "--seqno", "9", "--force"),
        ("confirm", "lab-1", "--origin", "1", "--receiver", "2"),
        ("health",),
        ("health", "lab-1", "--cluster", "lab"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(service, lethe, arguments) -> None:
    run = lethe("slony", *arguments, "--json")
    assert (run.code, run.json()["code"]) == (64, "USAGE")
    assert service.asked == []


CLEANUPS = "POST /v1/stores/lab-1/event-cleanups"
CLEANED = {
    "via": "BUILTIN",
    "confirmed_before": "2026-11-20T08:00:00Z",
    "counts": "EXACT",
    "units": 4,
    "classification": "AS_PLANNED",
    "removed": {"sl_confirm": 120, "sl_event": 1096, "sl_seqlog": 0},
    "origins": [
        {
            "origin": 1,
            "bound": BASE + 113,
            "first_seqno": BASE + 113,
            "last_seqno": BASE + 142,
            "held": "node 3 is behind",
        }
    ],
    "log_switch": {"step": "FINISHED", "emptied": "sl_log_1", "status_before": 3, "status": 1},
    "warnings": [{"code": "HELD_BEHIND", "detail": "node 3"}],
}


def test_cleanup_is_run_and_its_result_told(service, lethe) -> None:
    service.on(CLEANUPS, (202, job("EVENT_CLEANUP", "QUEUED")))
    ending(service, "EVENT_CLEANUP", "SUCCEEDED", result=CLEANED)
    options = (
        "--interval",
        "PT10M",
        "--via",
        "builtin",
        "--log-switch",
        "none",
        "--archive",
        "--reason",
        "r",
    )
    run = lethe("slony", "cleanup", "lab-1", *options)
    assert run.code == 0
    assert service.bodies(CLEANUPS) == [
        {
            "interval": "PT10M",
            "via": "BUILTIN",
            "log_switch": "NONE",
            "archive": {"format": "PARQUET"},
            "reason": "r",
        }
    ]
    shown = lines(run.out)
    assert ["sl_event", "1,096"] in shown
    assert ["emptied", "sl_log_1"] in shown
    assert ["1", "5000000113", "5000000113", "5000000142", "node", "3", "is", "behind"] in shown
    assert "warning: HELD_BEHIND: node 3" in run.err


def test_plan_of_a_cleanup_writes_nothing_and_says_how_to_run_it(service, lethe) -> None:
    plan = {
        "plan_id": "job_7",
        "via": "NATIVE",
        "rule": "PROGRAM",
        "confirmed_before": "2026-11-20T08:00:00Z",
        "tables": {"sl_event": 1096},
        "origins": [
            {
                "origin": 1,
                "rows": 1200,
                "rows_to_remove": 1096,
                "bound": BASE + 113,
                "held": {"why": "BEHIND", "receiver": 3, "seqno": BASE + 113},
            }
        ],
        "log_switch": {"step": "BLOCKED", "table": "sl_log_1"},
        "limits": {"exceeded": ["max_rows: 1096 rows would go, 10 may"]},
        "warnings": [{"code": "HELD_BEHIND", "detail": "node 3"}],
    }
    service.on(CLEANUPS, (200, plan))
    run = lethe("slony", "cleanup", "lab-1", "--plan")
    assert run.code == 0
    assert "validate_only=true" in service.asked[0][1]
    shown = lines(run.out)
    assert ["1", "1,200", "1,096", "5000000113", "BEHIND", "3", "5000000113"] in shown
    assert ["log", "switch", "BLOCKED", "sl_log_1"] in shown
    assert "lethe slony cleanup lab-1 --plan-id job_7" in run.err
    assert "over the limit, would be refused: max_rows" in run.err
    assert lethe("slony", "cleanup", "lab-1", "--plan", "--json").json() == plan


SWITCHES = "POST /v1/stores/lab-1/log-switches"


def test_switch_of_the_logs_that_cannot_end_in_time_ends_with_75(service, lethe) -> None:
    service.on(SWITCHES, (202, job("LOG_SWITCH", "QUEUED")))
    error = {"code": "LOG_SWITCH_TIMEOUT", "title": "t", "detail": "pid 4711", "retryable": True}
    result = {"outcome": "TIMED_OUT", "status": 3, "emptied": None, "waited_for": "PT5S", "warnings": []}
    ending(service, "LOG_SWITCH", "FAILED", error=error, result=result)
    run = lethe("slony", "switch-log", "lab-1", "--timeout", "5")
    assert run.code == 75
    assert ["log", "switch", "TIMED_OUT"] in lines(run.out)
    done = result | {"outcome": "FINISHED", "status": 1, "emptied": "sl_log_1"}
    ending(service, "LOG_SWITCH", "SUCCEEDED", result=done)
    assert lethe("slony", "switch-log", "lab-1", "--action", "finish").code == 0
    assert service.bodies(SWITCHES) == [
        {"action": "FULL", "timeout": "PT5S", "reason": "asked for on the command line"},
        {"action": "FINISH", "reason": "asked for on the command line"},
    ]


def test_a_sync_where_one_is_due_tells_whether_it_was_made_and_that_no_slon_runs(service, lethe) -> None:
    syncs = "POST /v1/stores/lab-1/event-syncs"
    service.on(syncs, (202, job("EVENT_SYNC", "QUEUED")))
    made = {"outcome": "MADE", "origin": 1, "seqno": 5000000141, "last_seqno": 5000000140}
    made |= {"last_age": "PT17M", "interval": "PT10M", "has_own_slon": False}
    ending(service, "EVENT_SYNC", "SUCCEEDED", result=made)
    run = lethe("slony", "sync", "lab-1", "--if-older-than", "PT10M")
    assert (run.code, ["made", "1,5000000141"] in lines(run.out)) == (0, True)
    assert "the slon of this node is not connected" in run.err
    none = made | {"outcome": "NOT_DUE", "seqno": None, "has_own_slon": True}
    ending(service, "EVENT_SYNC", "SUCCEEDED", result=none)
    run = lethe("slony", "sync", "lab-1", "--if-older-than", "PT1H")
    assert (run.code, "not connected" in run.err) == (0, False)
    assert ["outcome", "NOT_DUE"] in lines(run.out)
    assert service.bodies(syncs) == [
        {"interval": "PT10M", "reason": "asked for on the command line"},
        {"interval": "PT1H", "reason": "asked for on the command line"},
    ]


def test_a_job_that_is_left_alone_is_named(service, lethe) -> None:
    service.on(SWITCHES, (202, job("LOG_SWITCH", "QUEUED")))
    run = lethe("slony", "switch-log", "lab-1", "--no-wait")
    assert (run.code, "lethe job watch job_1" in run.err) == (0, True)


def test_a_node_is_registered_with_its_cluster(service, lethe) -> None:
    url = "postgresql+psycopg://slony@127.0.0.1/node1"
    made = {"id": "lab-1", "kind": "SLONY", "url": url, "cluster": "lab"}
    service.on("POST /v1/stores", (201, made))
    assert lethe("store", "add", "lab-1", url, "--kind", "SLONY", "--cluster", "lab").code == 0
    assert service.bodies("POST /v1/stores") == [made]
