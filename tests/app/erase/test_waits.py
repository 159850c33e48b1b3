"""What a cycle waits for, what it does not wait for, and what each refusal of the hands means."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.stores.rows import StoreMode
from spark.erase.calls.calls import Mode, PlanCall, Refusal, RefusalCode, RoundCall
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import FakeLog
from tests.app.hooks.outboxes import events_of, make_hook

LONG = {"min_file_age": "PT0S", "duration": "PT1000S"}
IN_VLSN_INDEX = {"VLSN_INDEX": "the index covers VLSN 1 to 5000"}


def refusal(code: RefusalCode, ref: str = "") -> Refusal:
    return Refusal(code, f"it is {code}", ref, "00000000.jdb", 77)


def test_protected_file_is_left_out_and_the_others_are_erased(erasers: Erasers, log: FakeLog) -> None:
    protection = erasers.protect(0)
    erasers.begin()
    erasers.run()
    assert erasers.states() == {0: "PENDING", 1: "ERASED", 2: "NOT_SELECTED"}
    job = erasers.job()
    assert (job.state, job.waiting_on[0]["kind"], job.waiting_on[0]["ref"]) == (
        "WAITING",
        "BACKUP",
        protection,
    )
    assert erasers.cycle().state == "RUNNING"


def test_end_of_a_backup_wakes_the_cycle(erasers: Erasers, log: FakeLog) -> None:
    protection = erasers.protect(0, 1, lease=timedelta(hours=20))
    erasers.begin()
    erasers.run()
    erasers.unprotect(protection)
    assert erasers.attempt()
    assert erasers.cycle().state == "COMPLETE"


def test_backup_that_ends_just_before_the_wait_is_not_slept_through(erasers: Erasers, log: FakeLog) -> None:
    protection = erasers.protect(0, 1, lease=timedelta(hours=20))
    log.on_plan = lambda _call: None
    erasers.begin()
    erasers.attempt()
    erasers.unprotect(protection)
    due = erasers.job().not_before
    assert due is not None
    assert due <= erasers.clock.now()


def test_stopped_round_goes_on_with_another_file(erasers: Erasers, log: FakeLog) -> None:
    log.refuse("round", 0, refusal(RefusalCode.STOPPED))
    log.on_round = lambda call: erasers.protect(0) if call.number == 0 and not log.rounds_of(0) else None
    erasers.begin()
    erasers.run()
    assert erasers.states()[0] == "IN_WORK"
    assert erasers.states()[1] == "ERASED"
    assert erasers.file(0).rows_done == 0


def test_range_of_unknown_origin_is_waited_for(erasers: Erasers, log: FakeLog) -> None:
    log.refuse("round", 0, refusal(RefusalCode.PROTECTED, "prt_of_somebody_else"))
    erasers.begin()
    erasers.run()
    assert erasers.waiting_kinds() == ["BACKUP"]
    assert erasers.job().waiting_on[0]["ref"] == "prt_of_somebody_else"
    erasers.run(until_s=100)
    assert erasers.cycle().state == "COMPLETE"


def test_locked_file_is_tried_again(erasers: Erasers, log: FakeLog) -> None:
    log.refuse("round", 0, refusal(RefusalCode.FILE_LOCKED))
    erasers.begin()
    erasers.run(until_s=30)
    assert erasers.cycle().state == "COMPLETE"


@pytest.mark.parametrize("code", [RefusalCode.ENVIRONMENT_IN_USE, RefusalCode.READER_PRESENT])
@pytest.mark.parametrize("kind", ["plan", "round"])
def test_environment_in_use_is_waited_for(
    erasers: Erasers, log: FakeLog, code: RefusalCode, kind: str
) -> None:
    log.refuse(kind, -1 if kind == "plan" else 0, *[refusal(code)] * 3)
    erasers.begin()
    erasers.attempt()
    assert (erasers.job().state, erasers.waiting_kinds()) == ("WAITING", ["ENVIRONMENT_IN_USE"])
    erasers.run(until_s=100)
    assert erasers.cycle().state == "COMPLETE"


@pytest.mark.parametrize("mode", [StoreMode.LIVE, StoreMode.CLOSED])
def test_store_is_planned_by_its_mode_whoever_uses_the_environment(
    erasers: Erasers, log: FakeLog, mode: StoreMode
) -> None:
    erasers.change_store(mode=mode, node_grace=timedelta(minutes=10), backup_grace=timedelta(days=1))
    erasers.begin()
    erasers.run(until_s=100)
    asked = [call for call in log.asked if isinstance(call, PlanCall)]
    assert [call.live is not None for call in asked] == [mode == StoreMode.LIVE]
    assert {str(call.mode) for call in log.rounds_of(0)} == {str(mode)}
    assert erasers.cycle().state == "COMPLETE"


def test_log_that_moved_while_it_was_planned_is_waited_for(erasers: Erasers, log: FakeLog) -> None:
    log.refuse("plan", -1, *[refusal(RefusalCode.LOG_MOVED, "LOG_FILE_VANISHED")] * 9)
    erasers.begin()
    erasers.attempt()
    assert (erasers.job().state, erasers.waiting_kinds()) == ("WAITING", ["LOG_MOVED"])
    erasers.run(until_s=1_000)
    assert (erasers.cycle().state, erasers.job().retries) == ("COMPLETE", 0)


@pytest.mark.parametrize(
    ("kind", "code", "state"),
    [
        ("prepare", RefusalCode.FILE_REPLACED, "REFUSED"),
        ("round", RefusalCode.FILE_RESIZED, "REFUSED"),
        ("round", RefusalCode.HEADER_CHANGED, "REFUSED"),
        ("prepare", RefusalCode.FILE_TOUCHED, "REFUSED"),
        ("round", RefusalCode.DISK_ERROR, "REFUSED"),
        ("prepare", RefusalCode.HARD_LINKED, "KEPT"),
        ("prove", RefusalCode.UNPROVEN, "UNPROVEN"),
        ("round", RefusalCode.ALREADY_DELETED, "ALREADY_DELETED"),
    ],
)
def test_refusal_of_a_file_ends_that_file_with_its_reason(
    erasers: Erasers, log: FakeLog, kind: str, code: RefusalCode, state: str
) -> None:
    make_hook(erasers.database)
    log.refuse(kind, 0, refusal(code))
    erasers.begin()
    erasers.run()
    assert erasers.states() == {0: state, 1: "ERASED", 2: "NOT_SELECTED"}
    told = [event for event in events_of(erasers.database) if event.type == "lethe.erasure.unproven"]
    assert [event.data["file"] for event in told] == ["00000000.jdb"] * (state == "UNPROVEN")
    assert erasers.cycle().state == "COMPLETE"
    row = erasers.file(0).refusal
    assert row is not None
    assert (row["code"], row["offset"]) == (code.value, 77)
    assert "SKIPPED" in erasers.messages()
    assert erasers.cycle().files_already_deleted == int(state == "ALREADY_DELETED")


@pytest.mark.parametrize("code", [RefusalCode.CONTROL_FILE_INVALID, RefusalCode.PERMISSION])
def test_refusal_of_the_attempt_fails_the_cycle(erasers: Erasers, log: FakeLog, code: RefusalCode) -> None:
    log.refuse("round", 0, refusal(code))
    erasers.begin()
    erasers.run()
    assert (erasers.cycle().state, erasers.job().state) == ("FAILED", "FAILED")
    assert erasers.job().error["code"] == code.value


def test_passed_epoch_ends_the_attempt_and_the_next_one_claims_anew(erasers: Erasers, log: FakeLog) -> None:
    log.refuse("round", 0, refusal(RefusalCode.EPOCH_PASSED))
    erasers.begin()
    erasers.run(until_s=100)
    assert erasers.cycle().state == "COMPLETE"
    first, *later = [call.epoch for call in log.rounds_of(0)]
    assert all(epoch > first for epoch in later)


def test_bytes_that_are_not_as_expected_are_unproven(erasers: Erasers, log: FakeLog) -> None:
    make_hook(erasers.database)
    log.is_proved = False
    erasers.begin()
    erasers.run()
    assert erasers.states()[0] == "UNPROVEN"
    told = [event for event in events_of(erasers.database) if event.type == "lethe.erasure.unproven"]
    assert {event.data["file"] for event in told} >= {"00000000.jdb"}
    assert erasers.cycle().files_erased == 0
    assert [warning["code"] for warning in erasers.events("warning")][:1] == ["UNPROVEN"]


@pytest.mark.parametrize("kind", ["header_times", "plan", "prepare", "round", "prove"])
def test_lost_hands_are_replaced_and_the_work_goes_on(erasers: Erasers, log: FakeLog, kind: str) -> None:
    log.lost = [kind]
    erasers.begin()
    erasers.run()
    assert erasers.cycle().state == "COMPLETE"
    assert erasers.states()[0] == "ERASED"


def test_hands_that_are_lost_again_and_again_end_the_attempt(erasers: Erasers, log: FakeLog) -> None:
    log.lost = ["round"] * 3
    erasers.begin()
    erasers.attempt()
    assert erasers.job().state == "WAITING"
    assert erasers.job().retries == 1
    erasers.run(until_s=100)
    assert erasers.cycle().state == "COMPLETE"


# -- causes that pass


def test_tail_is_waited_for_until_the_end_of_a_cycle(erasers: Erasers, log: FakeLog) -> None:
    log.add(1, causes={"RECOVERY_INTERVAL": "recovery would read from 00000001.jdb on"})
    erasers.begin(**LONG)
    erasers.run(until_s=900)
    assert (erasers.waiting_kinds(), erasers.states()[0]) == (["TAIL_OF_LOG"], "ERASED")
    erasers.run(until_s=200)
    assert erasers.cycle().state == "INCOMPLETE"
    assert erasers.cycle().incomplete == {"RECOVERY_INTERVAL": ["00000001.jdb"]}


def test_unthrottled_cycle_does_not_wait_for_the_tail(erasers: Erasers, log: FakeLog) -> None:
    log.add(1, causes={"RECOVERY_INTERVAL": "recovery would read from 00000001.jdb on"})
    erasers.begin()
    erasers.run()
    assert (erasers.cycle().state, erasers.job().state) == ("INCOMPLETE", "SUCCEEDED")
    assert erasers.job().result["remaining"] == 1


def test_vlsn_index_is_waited_for_with_the_truncation_it_takes(erasers: Erasers, log: FakeLog) -> None:
    log.add(0, causes=IN_VLSN_INDEX)
    log.add(1, causes=IN_VLSN_INDEX)
    log.vlsn = {"truncate_to_vlsn": 8207, "truncate_to_file": 0, "truncate_possible": 1}
    erasers.begin()
    erasers.run()
    assert erasers.waiting_kinds() == ["VLSN_TRUNCATION"]
    ref = erasers.job().waiting_on[0]["ref"]
    assert ref.startswith(
        "VLSN 8207, file 0x0; with the application closed: lethe je helper --write LetheJe.java"
    )
    assert ref.endswith(f"LetheJe.java {log.directory} truncate")


def test_truncated_index_frees_its_files_at_the_next_look(erasers: Erasers, log: FakeLog) -> None:
    log.add(0, causes=IN_VLSN_INDEX)
    log.vlsn = {"truncate_to_vlsn": 8207, "truncate_to_file": 0, "truncate_possible": 1}
    erasers.begin()
    erasers.run()
    assert erasers.states()[0] == "PENDING"
    log.add(0, rounds=2)
    log.add(3, rounds=0)  # the log has moved on
    erasers.run(until_s=70)
    assert erasers.cycle().state == "COMPLETE"
    assert erasers.states()[0] == "ERASED"
    assert erasers.messages().count("REPLANNED") == 1


def test_log_that_stands_still_is_not_planned_again(erasers: Erasers, log: FakeLog) -> None:
    log.add(0, causes={"NO_VLSN": "no file has a VLSN"})
    erasers.begin(**LONG)
    erasers.run(until_s=900)
    assert erasers.waiting_kinds() == ["NO_VLSN"]
    assert sum(type(call).__name__ == "PlanCall" for call in log.asked) == 1


def test_truncation_that_is_not_possible_ends_an_unthrottled_cycle(erasers: Erasers, log: FakeLog) -> None:
    log.add(0, causes=IN_VLSN_INDEX)
    log.vlsn = {"truncate_to_vlsn": 500, "truncate_to_file": 0, "truncate_possible": 0}
    erasers.begin()
    erasers.run()
    assert erasers.cycle().state == "INCOMPLETE"


def test_file_that_vanished_before_the_plan_is_already_deleted(erasers: Erasers, log: FakeLog) -> None:
    log.on_plan = lambda _call: log.remove(0) if 0 in log.files else None
    erasers.begin()
    erasers.run()
    assert erasers.states()[0] == "ALREADY_DELETED"
    assert erasers.cycle().files_already_deleted == 1


def test_store_that_becomes_live_is_planned_again_without_a_lock_of_je(
    erasers: Erasers, log: FakeLog
) -> None:
    """A plan made under JE's lock may hold what LIVE forbids: only a file that was begun keeps it."""

    def opened(_call: RoundCall) -> None:
        if len(log.rounds_of(0)) == 1:
            log.refuse("round", 0, *[refusal(RefusalCode.ENVIRONMENT_IN_USE)] * 2)

    log.on_round = opened
    erasers.begin()
    erasers.attempt()
    assert (erasers.job().state, erasers.waiting_kinds()) == ("WAITING", ["ENVIRONMENT_IN_USE"])
    erasers.change_store(mode="LIVE", backups="VIA_LETHE")
    erasers.run(until_s=60)
    assert erasers.cycle().state == "COMPLETE"
    assert {call.mode for call in log.rounds_of(0)} == {Mode.CLOSED}
    assert {call.mode for call in log.rounds_of(1)} == {Mode.LIVE}
    assert sum(isinstance(call, PlanCall) for call in log.asked) == 2


def test_second_job_on_the_same_directory_is_refused(erasers: Erasers, log: FakeLog) -> None:
    erasers.protect(0, 1, lease=timedelta(hours=20))
    erasers.begin()
    erasers.run()
    first = erasers.job().id
    erasers.store_id = "other"
    erasers.add_store()
    erasers.begin()
    erasers.run()
    error = erasers.job().error
    assert error is not None
    assert (error["code"], first in error["detail"]) == ("CONFLICTING_JOB", True)


def test_marker_of_a_strangers_backup_is_waited_for_and_ours_are_told(erasers: Erasers, log: FakeLog) -> None:
    """Nothing tells when such a backup ends: the cycle looks again, and does not fail."""
    erasers.change_store(mode="LIVE", backups="VIA_LETHE", backup_grace=timedelta(days=1))
    protection = erasers.protect(0, 1, lease=timedelta(hours=1))
    erasers.unprotect(protection)
    log.refuse("plan", -1, refusal(RefusalCode.LOG_REFUSED, "LIVE_BACKUP_UNKNOWN"))
    erasers.begin()
    assert erasers.attempt()
    assert (erasers.job().state, erasers.job().waiting_on[0]["kind"]) == ("WAITING", "BACKUP_MARKER")
    erasers.run(until_s=1_000)
    assert (erasers.cycle().state, erasers.job().retries) == ("COMPLETE", 0)
    [first, *_] = [call for call in log.asked if isinstance(call, PlanCall)]
    assert first.live is not None
    [(begin, end)] = first.live.backups_ms
    assert begin <= end <= first.live.now_ms
