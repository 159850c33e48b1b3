"""Cycles on fake hands: files in their order, their states, the sums, and each row of the table of ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.erase.errors import CycleRunning, PeriodMissing
from app.jobs.errors import StopCause
from spark.erase.calls.calls import PrepareCall, Refusal, RefusalCode, RoundCall
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import BEFORE, EXPECTED, MIB, FakeLog

PERIOD_S = 1_000.0
LONG = {"min_file_age": "PT0S", "duration": f"PT{PERIOD_S:.0f}S"}


def test_unthrottled_cycle_erases_all_files_but_the_last(erasers: Erasers, log: FakeLog) -> None:
    erasers.begin()
    erasers.run()
    cycle, job = erasers.cycle(), erasers.job()
    assert (cycle.state, job.state) == ("COMPLETE", "SUCCEEDED")
    assert erasers.states() == {0: "ERASED", 1: "ERASED", 2: "NOT_SELECTED"}
    assert log.order() == [0, 1]
    assert cycle.ends_at is None
    assert erasers.kept_plans() == 0
    assert job.result is not None
    assert job.result["files"] == {"ERASED": 2, "NOT_SELECTED": 1}
    assert [warning["code"] for warning in job.result["warnings"]] == ["TAIL_OF_LOG"]


def test_erased_file_shows_hashes_rounds_and_costs(erasers: Erasers) -> None:
    erasers.begin()
    erasers.run()
    file = erasers.file(0)
    assert (file.sha256_before, file.sha256_expected, file.sha256_after) == (BEFORE, EXPECTED, EXPECTED)
    assert (file.rounds, file.rows_done, file.entries_erased, file.passes) == (2, 2, 2, 1)
    assert (file.is_proved, file.proved_by) == (True, "O_DIRECT")
    assert (file.fsyncs, file.writes) == (12, 8)  # prepare, two rounds, proof: as the fake hands cost
    assert file.fsync_s[:3] == [0.001, 0.002, 0.003]


def test_sums_of_the_store_grow_over_cycles_and_those_of_a_cycle_do_not(erasers: Erasers) -> None:
    for _ in range(2):
        erasers.begin()
        erasers.run()
    assert erasers.cycle().files_erased == 2
    assert erasers.sums().files_erased == 4
    assert erasers.sums().fsyncs == 2 * erasers.cycle().fsyncs


def test_first_round_alone_touches_the_file(erasers: Erasers, log: FakeLog) -> None:
    erasers.begin()
    erasers.run()
    assert [call.is_first for call in log.rounds_of(0)] == [True, False]
    epochs = {call.epoch for call in log.rounds_of(0)}
    assert epochs == {erasers.job().fencing_token}


def test_young_files_are_not_selected(erasers: Erasers, log: FakeLog) -> None:
    now_ms = int(erasers.clock.now().timestamp() * 1000)
    log.add(1, rounds=2, created_ms=now_ms - 5_000)
    erasers.begin(min_file_age="PT10S", duration="PT0S")
    erasers.run()
    assert erasers.states() == {0: "ERASED", 1: "NOT_SELECTED", 2: "NOT_SELECTED"}
    assert erasers.file(1).causes[0][0] == "TOO_YOUNG"


def test_period_is_age_and_length_at_once(erasers: Erasers) -> None:
    erasers.begin(period="P25D")
    erasers.run()
    cycle = erasers.cycle()
    assert cycle.started_at is not None
    assert cycle.ends_at == cycle.started_at + timedelta(days=25)
    assert cycle.cutoff_at == cycle.started_at - timedelta(days=25)


def test_request_without_a_length_is_refused_where_the_store_has_none(erasers: Erasers) -> None:
    with pytest.raises(PeriodMissing):
        erasers.begin(reason="now")


def test_second_cycle_is_refused_while_one_runs(erasers: Erasers) -> None:
    first = erasers.begin(**LONG)
    with pytest.raises(CycleRunning) as refused:
        erasers.begin()
    assert refused.value.extra["erasure_cycle_id"] == first


def test_complete_cycle_rests_and_gives_way_to_a_new_one(erasers: Erasers) -> None:
    first = erasers.begin(**LONG)
    erasers.run(until_s=PERIOD_S - 1)
    assert erasers.cycle(first).state == "COMPLETE"
    erasers.begin()
    erasers.run()
    assert erasers.cycle().id != first
    assert erasers.cycle().state == "COMPLETE"


def test_file_without_entries_is_clean_and_never_opened_for_writing(erasers: Erasers, log: FakeLog) -> None:
    log.add(0, rounds=0)
    erasers.begin()
    erasers.run()
    assert erasers.states()[0] == "CLEAN"
    assert erasers.cycle().files_erased == 1
    assert not [call for call in log.asked if isinstance(call, PrepareCall) and call.number == 0]


def test_reserved_file_is_deleted_where_the_store_says_so(erasers: Erasers, log: FakeLog) -> None:
    log.add(0, rounds=1, reserved=True)
    erasers.change_store(delete_reserved_files=True)
    erasers.begin()
    erasers.run()
    assert erasers.states()[0] == "DELETED"
    assert not (log.directory / "00000000.jdb").exists()
    assert erasers.cycle().files_deleted == 1


def test_reserved_file_stays_by_default(erasers: Erasers, log: FakeLog) -> None:
    log.add(0, rounds=1, reserved=True)
    erasers.begin()
    erasers.run()
    assert erasers.states()[0] == "CLEAN"
    assert (log.directory / "00000000.jdb").exists()


def test_hard_linked_file_is_set_aside_with_a_warning(erasers: Erasers, log: FakeLog) -> None:
    log.add(0, causes={"HARD_LINKED": "2 names share its bytes"})
    erasers.begin()
    erasers.run()
    assert (erasers.cycle().state, erasers.states()[0]) == ("COMPLETE", "KEPT")
    assert erasers.job().result["warnings"][0]["code"] == "KEPT"


def test_messages_tell_start_end_processed_and_remaining(erasers: Erasers) -> None:
    erasers.begin(**LONG)
    erasers.run(until_s=PERIOD_S - 1)
    assert erasers.messages() == ["INITIALIZING", "STARTED", "FILE", "FILE", "COMPLETED"]
    started, done = erasers.events("eraser")[1], erasers.events("eraser")[-1]
    assert (started["processed"], started["remaining"]) == ("", "0x0-0x1")
    assert (done["processed"], done["remaining"]) == ("0x0-0x1", "")
    assert started["text"].startswith("ERASER New cycle started")
    assert started["start"] < started["end"]


# -- the table of ends


def test_end_with_files_left_makes_the_cycle_incomplete(erasers: Erasers, log: FakeLog) -> None:
    erasers.protect(1, lease=timedelta(hours=20))
    erasers.begin(**LONG)
    erasers.run(until_s=PERIOD_S + 10)
    cycle, job = erasers.cycle(), erasers.job()
    assert (cycle.state, job.state) == ("INCOMPLETE", "SUCCEEDED")
    assert job.result is not None
    assert job.result["remaining"] == 1
    assert erasers.messages()[-1] == "INCOMPLETE"
    assert 1 not in log.order()


def test_end_in_the_middle_of_a_file_stops_after_the_round(erasers: Erasers, log: FakeLog) -> None:
    log.add(0, rounds=40)
    log.on_round = lambda call: erasers.clock.advance(100) if len(log.rounds_of(0)) > 3 else None
    erasers.begin(min_file_age="PT0S", duration="PT300S")
    erasers.run(until_s=1_000)
    assert erasers.cycle().state == "INCOMPLETE"
    assert erasers.states()[0] == "IN_WORK"
    assert 0 < erasers.file(0).rows_done < 40


def test_shutdown_suspends_the_cycle_and_leaves_its_job_waiting(erasers: Erasers, log: FakeLog) -> None:
    log.on_round = lambda _call: erasers.signal(StopCause.SHUTDOWN)
    erasers.begin()
    erasers.attempt()
    assert (erasers.cycle().state, erasers.job().state) == ("SUSPENDED", "WAITING")
    assert erasers.messages()[-1] == "SUSPENDED"
    assert erasers.file(0).rows_done == 1


def test_restart_before_the_end_resumes_behind_the_last_round(erasers: Erasers, log: FakeLog) -> None:
    log.on_round = lambda _call: erasers.signal(StopCause.SHUTDOWN)
    erasers.begin(min_file_age="PT0S", duration="PT1000S")
    erasers.run(until_s=999, until=lambda: log.rounds_of(0))
    erasers.restart()
    assert erasers.shown().state == "SUSPENDED"
    log.on_round = lambda _call: None
    erasers.run(until_s=PERIOD_S)
    assert erasers.cycle().state == "COMPLETE"
    assert "RESUMED" in erasers.messages()
    assert [call.is_first for call in log.rounds_of(0)] == [True, False]
    assert erasers.file(0).passes == 1


def test_restart_past_the_end_expires_the_cycle_and_a_fresh_one_starts(erasers: Erasers) -> None:
    first = erasers.begin(**LONG)
    erasers.run(until_s=100)
    erasers.restart(away_s=PERIOD_S)
    erasers.run()
    assert (erasers.cycle(first).state, erasers.job(first).state) == ("EXPIRED", "ABORTED")
    assert erasers.job(first).reason == "CYCLE_EXPIRED"
    erasers.tick()
    fresh = erasers.cycle()
    assert fresh.id != first
    assert (fresh.duration_s, fresh.min_file_age_s) == (PERIOD_S, 0)
    erasers.run(until_s=PERIOD_S)
    assert erasers.cycle().state == "COMPLETE"
    assert len(erasers.cycles()) == 2


def test_end_while_it_waits_for_its_throttle_is_no_expiry(erasers: Erasers, log: FakeLog) -> None:
    erasers.protect(0, 1, lease=timedelta(hours=20))
    erasers.begin(**LONG)
    erasers.run(until_s=PERIOD_S + 100)
    assert erasers.cycle().state == "INCOMPLETE"


def test_pause_suspends_after_the_round_and_resume_goes_on(erasers: Erasers, log: FakeLog) -> None:
    def pause(_call: RoundCall) -> None:
        erasers.pause()
        erasers.signal(StopCause.PAUSE)

    log.on_round = pause
    erasers.begin()
    erasers.attempt()
    assert (erasers.cycle().state, erasers.job().state) == ("SUSPENDED", "PAUSED")
    assert erasers.file(0).rows_done == 1
    log.on_round = lambda _call: None
    erasers.resume()
    erasers.run()
    assert (erasers.cycle().state, erasers.job().state) == ("COMPLETE", "SUCCEEDED")


def test_abort_ends_the_cycle_and_none_follows_by_itself(erasers: Erasers, log: FakeLog) -> None:
    def abort(_call: RoundCall) -> None:
        erasers.abort()
        erasers.signal(StopCause.ABORT)

    log.on_round = abort
    erasers.set(run_eraser=True, period="PT1H")
    erasers.tick()
    erasers.run(until_s=3_000)
    assert (erasers.cycle().state, erasers.job().state) == ("ABORTED", "ABORTED")
    assert erasers.messages()[-1] == "ABORTED"
    erasers.clock.advance(100_000)
    erasers.tick()
    assert len(erasers.cycles()) == 1


def test_abort_of_a_waiting_job_ends_the_cycle_by_the_next_look(erasers: Erasers) -> None:
    erasers.begin(**LONG)
    erasers.run(until_s=100)
    erasers.abort()
    assert erasers.shown().state == "ABORTED"
    erasers.tick()
    assert erasers.cycle().state == "ABORTED"
    assert erasers.kept_plans() == 0


def test_failure_fails_the_cycle_with_file_and_offset(erasers: Erasers, log: FakeLog) -> None:
    broken = Refusal(
        RefusalCode.LOG_REFUSED, "LOG_CHECKSUM_WRONG: it is 1", "LOG_CHECKSUM_WRONG", "00000000.jdb", 77
    )
    log.refuse("plan", -1, broken)
    erasers.begin()
    erasers.run()
    assert (erasers.cycle().state, erasers.job().state) == ("FAILED", "FAILED")
    error = erasers.job().error
    assert error is not None
    assert error["code"] == "LOG_CHECKSUM_WRONG"
    assert "00000000.jdb, offset 77" in error["detail"]
    assert not (log.directory / "lethe.control").exists()


def test_suspended_store_suspends_its_cycle(erasers: Erasers) -> None:
    erasers.begin(**LONG)
    erasers.run(until_s=100)
    erasers.suspend()
    assert erasers.shown().state == "SUSPENDED"
    erasers.run(until_s=300)
    assert (erasers.cycle().state, erasers.job().state) == ("SUSPENDED", "WAITING")
    assert erasers.waiting_kinds() == ["STORE_SUSPENDED"]
    erasers.resume_store()
    erasers.run(until_s=PERIOD_S)
    assert erasers.cycle().state == "COMPLETE"


def test_retry_of_an_aborted_cycle_makes_a_fresh_one(erasers: Erasers) -> None:
    first = erasers.begin(**LONG)
    erasers.abort()
    erasers.tick()
    erasers.retry()
    erasers.attempt()
    assert erasers.cycle().id != first
    assert erasers.job().subject["id"] == erasers.cycle().id


def test_size_of_the_work_is_three_units_a_byte(erasers: Erasers) -> None:
    erasers.begin(**LONG)
    erasers.run(until_s=PERIOD_S - 1)
    cycle = erasers.cycle()
    assert cycle.total_units == 3 * 2 * 20 * MIB
    assert cycle.done_units == cycle.total_units
