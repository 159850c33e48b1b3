"""What a cycle says of the files that it did not erase, and of an end that it will not meet.

Certificates had an empty `not_erased_because` for every file that a cycle had not come to or had left in
work, and a cycle whose time had gone to backups said nothing before it had ended with 15 of 21 files left.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from lethe_client.certificates import verify_certificate

from app.erase.certificates.certificate import document_of, issue_certificate
from app.erase.cycle.lateness import time_in
from app.erase.rows import FileState
from app.kit.durations import parse_duration
from spark.erase.calls.calls import Refusal, RefusalCode
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import FakeLog

PERIOD_S = 1_000
LONG = {"min_file_age": "PT0S", "duration": f"PT{PERIOD_S}S"}


def causes(erasers: Erasers, number: int) -> list[str]:
    return [cause for cause, _detail in erasers.file(number).causes]


def test_file_that_a_backup_held_to_the_end_says_so(erasers: Erasers, log: FakeLog) -> None:
    protection = erasers.protect(1, lease=timedelta(hours=20))
    erasers.begin(**LONG)
    erasers.run(until_s=PERIOD_S + 10)
    assert erasers.cycle().state == "INCOMPLETE"
    [[cause, detail]] = erasers.file(1).causes
    assert cause == "PROTECTED"
    assert protection in detail
    assert erasers.job().result["remaining_by_cause"] == {"PROTECTED": ["00000001.jdb"]}


def test_file_that_was_left_in_work_says_how_far_it_came(erasers: Erasers, log: FakeLog) -> None:
    lease = timedelta(hours=20)
    log.refuse("round", 0, Refusal(RefusalCode.STOPPED, "the stop counter is 8"))
    log.on_round = lambda call: erasers.protect(0, lease=lease) if not log.rounds_of(0) else None
    erasers.begin(**LONG)
    erasers.run(until_s=PERIOD_S + 10)
    assert erasers.states()[0] == FileState.IN_WORK
    assert causes(erasers, 0) == ["PROTECTED", "STOPPED", "IN_WORK"]
    count = erasers.file(0).entry_count
    assert f"0 of {count} planned entries" in erasers.file(0).causes[-1][1]


def test_every_file_of_a_certificate_that_is_not_erased_says_why(erasers: Erasers, log: FakeLog) -> None:
    erasers.protect(0, 1, lease=timedelta(hours=20))
    cycle_id = erasers.begin(**LONG)
    erasers.run(until_s=PERIOD_S + 10)
    row = issue_certificate(
        erasers.database, erasers.settings, cycle_id, instance_id="i", now=erasers.clock.now()
    )
    said = verify_certificate(document_of(row)).certificate
    for file in said["files"]:
        assert file["state"] != "ERASED"
        assert file["not_erased_because"], file["name"]
        assert all(each["cause"] and each["detail"] for each in file["not_erased_because"])


def test_aborted_cycle_says_of_each_file_that_it_was_not_reached(erasers: Erasers, log: FakeLog) -> None:
    erasers.begin(**LONG)
    erasers.attempt()
    erasers.abort()
    erasers.run()
    erasers.tick()
    assert erasers.cycle().state == "ABORTED"
    left = [number for number, state in erasers.states().items() if state in ("PENDING", "IN_WORK")]
    assert left
    assert all(set(causes(erasers, number)) & {"NOT_REACHED", "IN_WORK"} for number in left)


def test_deletion_that_was_cut_off_is_not_called_one_that_the_next_cycle_finishes(
    erasers: Erasers, log: FakeLog
) -> None:
    """The service died between renaming a reserved file and unlinking it, and the cycle was aborted: it said
    that no entry was overwritten and that the next cycle finishes the file, which none ever looks at.
    """
    log.add(0, rounds=1, reserved=True)
    log.lost = ["delete_reserved"] * 3
    erasers.change_store(delete_reserved_files=True)
    cycle_id = erasers.begin(**LONG)
    erasers.attempt()
    erasers.abort()
    erasers.run()
    erasers.tick()
    assert erasers.cycle().state == "ABORTED"
    [[cause, detail]] = erasers.file(0).causes
    assert cause == "IN_WORK"
    assert "00000000.del" in detail
    assert "next cycle" not in detail
    row = issue_certificate(
        erasers.database, erasers.settings, cycle_id, instance_id="i", now=erasers.clock.now()
    )
    said = verify_certificate(document_of(row)).certificate
    assert said["files"][0]["not_erased_because"] == [{"cause": cause, "detail": detail}]


def test_cycle_without_an_end_says_none(erasers: Erasers, log: FakeLog) -> None:
    erasers.begin()
    erasers.run()
    assert {event["end"] for event in erasers.events("eraser")} == {"none"}
    assert all(" end=none " in event["text"] for event in erasers.events("eraser"))


def test_end_of_a_cycle_tells_what_became_of_its_files(erasers: Erasers, log: FakeLog) -> None:
    """Five files that JE had deleted were "processed", and the message read as if they had been erased."""
    log.refuse("prepare", 0, Refusal(RefusalCode.ALREADY_DELETED, "it is gone", file="00000000.jdb"))
    erasers.begin()
    erasers.run()
    assert erasers.events("eraser")[-1]["outcomes"] == "ALREADY_DELETED 1, ERASED 1"


def test_cycle_whose_time_goes_to_a_backup_says_so_before_its_end(erasers: Erasers, log: FakeLog) -> None:
    protection = erasers.protect(0, 1, lease=timedelta(hours=20))
    erasers.begin(**LONG)
    erasers.run(until_s=PERIOD_S - 50)
    erasers.unprotect(protection)
    assert erasers.cycle().state == "RUNNING"
    *before, late = [event for event in erasers.events("eraser") if event["message"] == "LATE"]
    *_, warning = [event for event in erasers.events("warning") if event["code"] == "CYCLE_LATE"]
    assert late["files"] == 2
    assert late["period_that_would_do"] in warning["detail"]
    assert 0 < len(before) < 10, "said again as it grows, and not at every look"


def test_period_that_a_late_cycle_names_would_have_done(erasers: Erasers, log: FakeLog) -> None:
    """The same time lost to a backup, the period that the late cycle names: it ends COMPLETE."""
    lost_s = 0.6 * PERIOD_S
    named_s = float(PERIOD_S)
    for expected in ("INCOMPLETE", "COMPLETE"):
        begun = erasers.clock.now()
        protection = erasers.protect(0, 1, lease=timedelta(hours=20))
        erasers.begin(min_file_age="PT0S", duration=f"PT{int(named_s)}S")
        erasers.run(until_s=lost_s)
        erasers.unprotect(protection)
        left_s = named_s - (erasers.clock.now() - begun).total_seconds()
        erasers.run(until_s=left_s + 5)
        assert erasers.cycle().state == expected, named_s
        late = [event for event in erasers.events("eraser") if event["message"] == "LATE"]
        assert bool(late) is (expected == "INCOMPLETE")
        if late:
            named_s = parse_duration(late[-1]["period_that_would_do"]).total_seconds()


def test_undisturbed_cycle_is_never_late(erasers: Erasers, log: FakeLog) -> None:
    erasers.begin(**LONG)
    erasers.run(until_s=PERIOD_S + 10)
    assert "LATE" not in erasers.messages()
    assert erasers.cycle().state == "COMPLETE"


@pytest.mark.parametrize(
    ("spans", "expected_s"),
    [
        ([], 0),
        ([(0, 10)], 10),
        ([(-50, 10), (5, 20), (90, 400)], 30),
        ([(30, 20), (200, 300)], 0),
        ([(10, 20), (12, 15), (20, 21)], 11),
    ],
)
def test_time_under_backups_is_counted_once(spans: list[tuple[int, int]], expected_s: int) -> None:
    zero = datetime(2026, 1, 1, tzinfo=UTC)
    at = [(zero + timedelta(seconds=first), zero + timedelta(seconds=last)) for first, last in spans]
    assert time_in(at, zero, zero + timedelta(seconds=100)) == timedelta(seconds=expected_s)
