"""389's words for an agreement, against lines of real servers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from app.replication.agreements.status import changes_sent, message_of, status_json, words_of
from app.replication.rows import ReplicationSession
from app.replication.supplier.record import BACKOFF_MAX_S, backoff_s, show_end
from tests.app.agreements import agreement_of

AT = datetime(2026, 11, 20, 8, 1, 33, 999_000, UTC)
# Of data/replication/status-json-lines.txt, each kind of line once.
REAL: dict[str, str] = {
    "busy": (
        '{"state": "amber", "ldap_rc": "0", "ldap_rc_text": "Success", "repl_rc": "1", "repl_rc_text":'
        ' "replica busy", "date": "2026-11-20T08:01:33Z", "message": "Error (1) Can\'t acquire busy replica'
        ' (Unable to acquire replica: the replica is currently being updated by another supplier.)"}'
    ),
    "transient": (
        '{"state": "amber", "ldap_rc": "0", "ldap_rc_text": "Success", "repl_rc": "18", "repl_rc_text":'
        ' "transient warning", "date": "2026-11-20T08:01:33Z", "message": "Error (18) Can\'t acquire replica'
        ' (Incremental update transient warning.  Backing off, will retry update later.)"}'
    ),
    "total": (
        '{"state": "green", "ldap_rc": "0", "ldap_rc_text": "Success", "repl_rc": "0", "repl_rc_text":'
        ' "replica acquired", "conn_rc": "0", "conn_rc_text": "operation success", "date":'
        ' "2026-11-20T08:01:33Z", "message": "Error (0) Total update succeeded"}'
    ),
    "started": (
        '{"state": "green", "ldap_rc": "0", "ldap_rc_text": "Success", "repl_rc": "0", "repl_rc_text":'
        ' "replica acquired", "date": "2026-11-20T08:01:33Z", "message": "Error (0) Replica acquired'
        ' successfully: Incremental update started"}'
    ),
    "succeeded": (
        '{"state": "green", "ldap_rc": "0", "ldap_rc_text": "Success", "repl_rc": "0", "repl_rc_text":'
        ' "replica acquired", "date": "2026-11-20T08:01:33Z", "message": "Error (0) Replica acquired'
        ' successfully: Incremental update succeeded"}'
    ),
    "never": (
        '{"state": "green", "ldap_rc": "0", "ldap_rc_text": "success", "repl_rc": "0", "repl_rc_text":'
        ' "replica acquired", "date": "2026-11-20T08:01:33Z", "message": "Error (0) No replication sessions'
        ' started since server startup"}'
    ),
    "unreachable": (
        '{"state": "red", "ldap_rc": "-1", "ldap_rc_text": "Can\'t contact LDAP server", "repl_rc": "16",'
        ' "repl_rc_text": "connection error", "date": "2026-11-20T08:01:33Z", "message": "Error (-1) Problem'
        " connecting to replica - LDAP error: Can't contact LDAP server (connection error)\"}"
    ),
    "generation": (
        '{"state": "red", "ldap_rc": "0", "ldap_rc_text": "Success", "repl_rc": "19", "repl_rc_text":'
        ' "RUV error", "date": "2026-11-20T08:01:33Z", "message": "Error (19) Replication error acquiring'
        " replica: Replica has different database generation ID, remote replica may need to be initialized"
        ' (RUV error)"}'
    ),
}


def _session(**fields: Any) -> ReplicationSession:
    usual = {"mode": "INCREMENTAL", "state": "SENDING", "counters": {}, "problem": None}
    return ReplicationSession(id="rps_1", agreement_id="agr_1", **(usual | fields))


@pytest.mark.parametrize(
    ("line", "session", "is_active"),
    [
        ("never", None, False),
        ("started", _session(), True),
        ("succeeded", _session(outcome="UP_TO_DATE"), False),
        ("total", _session(outcome="UP_TO_DATE", mode="TOTAL"), False),
        ("busy", _session(problem={"code": "REPLICA_BUSY", "detail": "held"}), True),
        ("transient", _session(problem={"code": "PREV_GAP", "detail": "a gap"}), True),
        ("unreachable", _session(problem={"code": "PEER_UNANSWERED", "detail": "no"}), True),
        (
            "generation",
            _session(outcome="NEEDS_TOTAL", problem={"code": "NEEDS_TOTAL", "reason": "GENERATION_MISMATCH"}),
            False,
        ),
    ],
)
def test_a_status_is_the_line_of_a_real_server(
    line: str, session: ReplicationSession | None, is_active: bool
) -> None:
    words = words_of(session, is_active=is_active)
    is_total = session is not None and session.mode == "TOTAL"
    document = status_json(words, at=AT, is_total=is_total)
    real = json.loads(REAL[line])
    assert document == real
    assert list(document) == list(real)
    assert message_of(words) == real["message"]


@pytest.mark.parametrize(
    ("outcome", "problem", "state", "rc"),
    [
        ("NEEDS_TOTAL", {"code": "NEEDS_TOTAL", "detail": "gone", "reason": "PURGED"}, "red", "7"),
        ("FAILED", {"code": "DUPLICATE_RID", "detail": "both are 1"}, "red", "11"),
        ("FAILED", {"code": "CLOCK_SKEW", "detail": "a day"}, "red", "2"),
        ("FAILED", {"code": "INTERNAL", "detail": "a bug"}, "red", "8"),
        ("HALTED", {"code": "HALTED", "detail": "refused"}, "amber", "8"),
    ],
)
def test_what_lost_nothing_silently_is_never_green(
    outcome: str, problem: dict[str, str], state: str, rc: str
) -> None:
    words = words_of(_session(outcome=outcome, problem=problem), is_active=False)
    document = status_json(words, at=None, is_total=False)
    assert (document["state"], document["repl_rc"]) == (state, rc)
    assert problem["detail"] in document["message"]
    assert document["date"] == "1970-01-01T00:00:00Z"


def test_changes_sent_add_up_over_sessions_and_end_with_a_blank() -> None:
    agreement = agreement_of("s", AT, sent={})
    counted = {"sent": 205, "acknowledged": 205, "rejected": 0}
    other = {"sent": 3, "acknowledged": 2, "rejected": 1}
    show_end(agreement, _session(outcome="UP_TO_DATE", counters={"1": counted}), now=AT)
    show_end(agreement, _session(outcome="HALTED", counters={"1": counted, "12": other}), now=AT)
    assert changes_sent(agreement, None) == "1:410/0 12:2/1 "
    active = _session(counters={"3": {"acknowledged": 7, "rejected": 0}})
    assert changes_sent(agreement, active) == "1:410/0 3:7/0 12:2/1 "
    assert changes_sent(agreement_of("s", AT, sent={}), None) == ""


def test_failures_in_a_row_make_the_pause_longer_and_a_success_ends_it() -> None:
    assert [backoff_s(failures) for failures in range(9)] == [0, 3, 6, 12, 24, 48, 96, 192, 300]
    assert backoff_s(10**6) == BACKOFF_MAX_S
    agreement = agreement_of("s", AT, sent={})
    for seconds in (3, 6, 12):
        show_end(agreement, _session(outcome="NEEDS_TOTAL", problem={"code": "NEEDS_TOTAL"}), now=AT)
        assert agreement.next_at is not None
        assert (agreement.next_at - AT).total_seconds() == seconds
    show_end(agreement, _session(outcome="UP_TO_DATE"), now=AT)
    assert (agreement.next_at, agreement.failures, agreement.last_code) == (None, 0, None)
