"""`lethe slony ready`: what it asks, what a script learns by its exit code, what it says while it waits."""

from typing import Any

import pytest

from app.cli.slony.ready import Command
from spark.events.preconditions import records

READY = "POST /v1/stores/lab-1/events:precondition"
AWAITED = [{"what": "CONFIG", "origin": 1, "seqno": 5_000_000_131, "type": "STORE_SET"}]
HELD = {
    "node": 2,
    "why": "SLON_NOT_RUNNING",
    "detail": "node 2 has not confirmed STORE_SET (1,5000000131), only up to 5000000113",
    "advice": "Start the slon of node 2.",
}


def answer(*, met: bool, command: str = "SUBSCRIBE_SET") -> dict[str, Any]:
    return {
        "met": met,
        "command": command,
        "as_program": False,
        "missing": [],
        "not_evaluated": [],
        "evaluated": [1, 2, 3],
        "awaited": AWAITED,
        "held_by": [] if met else [HELD],
    }


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second between two looks."""
    monkeypatch.setattr("lethe_client.slony.READY_PAUSE_S", 0.0)


def test_ready_is_asked_once_and_ends_with_0(service, lethe) -> None:
    service.on(READY, (200, answer(met=True)))
    run = lethe("slony", "ready", "subscribe_set", "lab-1", "--provider", "2", "--receiver", "3")
    assert (run.code, run.out.strip()) == (0, "READY: SUBSCRIBE_SET may be submitted.")
    assert service.bodies(READY) == [{"command": "SUBSCRIBE_SET", "provider": 2, "receiver": 3}]
    assert "prefer" not in service.asked[0][3]


def test_not_ready_ends_with_75_and_says_who_holds_it_and_what_to_do(service, lethe) -> None:
    service.on(READY, (200, answer(met=False)))
    run = lethe("slony", "ready", "SUBSCRIBE_SET", "lab-1", "--provider", "2", "--as-program")
    assert run.code == 75
    assert run.out.startswith("NOT READY: SUBSCRIBE_SET has to wait.")
    assert HELD["detail"] in run.out
    assert HELD["advice"] in run.err
    assert service.bodies(READY)[0]["as_program"] is True


def test_every_field_of_the_request_has_its_option(service, lethe) -> None:
    service.on(READY, (200, answer(met=True)))
    words = ["--origin", "1", "--set", "4", "--add-set", "5", "--previous-event-node", "2"]
    assert lethe("slony", "ready", "MERGE_SET", "lab-1", *words).code == 0
    words = ["--node", "1", "--backup-node", "2", "--event-node", "3"]
    assert lethe("slony", "ready", "FAILOVER", "lab-1", *words).code == 0
    assert service.bodies(READY) == [
        {"command": "MERGE_SET", "origin": 1, "set": 4, "add_set": 5, "previous_event_node": 2},
        {"command": "FAILOVER", "node": 1, "backup_node": 2, "event_node": 3},
    ]


def test_wait_goes_on_with_what_was_fixed_and_tells_it_on_stderr(service, lethe, quick) -> None:
    service.on(READY, (200, answer(met=False)), (200, answer(met=False)), (200, answer(met=True)))
    run = lethe("slony", "ready", "SUBSCRIBE_SET", "lab-1", "--provider", "2", "--wait", "--json")
    assert (run.code, run.json()) == (0, answer(met=True))
    assert run.err.count(f"s: {HELD['detail']}") == 2
    assert [body.get("awaited") for body in service.bodies(READY)] == [None, AWAITED, AWAITED]
    assert {headers["prefer"] for _, _, _, headers in service.asked} == {"wait=10"}


def test_wait_ends_with_75_when_its_time_is_over(service, lethe, quick) -> None:
    service.on(READY, (200, answer(met=False)))
    run = lethe("slony", "ready", "SUBSCRIBE_SET", "lab-1", "--provider", "2", "--wait", "--timeout", "0.05")
    assert run.code == 75
    assert run.out.startswith("NOT READY")
    assert HELD["advice"] in run.err


def test_wait_outlives_a_node_that_cannot_be_asked(service, lethe, quick) -> None:
    away = {"code": "TARGET_UNREACHABLE", "title": "t", "detail": "node1 is away", "retryable": True}
    service.on(READY, *[(503, away)] * 4, (200, answer(met=True)))
    run = lethe("slony", "ready", "CREATE_SET", "lab-1", "--origin", "1", "--wait")
    assert run.code == 0
    assert "the service could not look: TARGET_UNREACHABLE: node1 is away" in run.err


def test_refused_question_ends_at_once(service, lethe) -> None:
    refused = {"code": "UNKNOWN_NODE", "title": "t", "detail": "there is no node 9", "retryable": False}
    service.on(READY, (422, refused))
    run = lethe("slony", "ready", "CREATE_SET", "lab-1", "--origin", "9", "--wait")
    assert (run.code, len(service.asked)) == (64, 1)
    assert "UNKNOWN_NODE" in run.err
    assert lethe("slony", "ready", "SWITCH_LOG", "lab-1").code == 64


def test_commands_are_those_of_the_service() -> None:
    assert {each.value for each in Command} == {each.value for each in records.Command}
