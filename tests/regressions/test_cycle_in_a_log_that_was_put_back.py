"""A cycle went on by its old plan after an older backup had been put into the environment's place: what the
plan called obsolete was live again. A file that had been begun kept its plan even where the log was read
anew.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from app.db import Database
from app.settings import Settings
from spark.erase.calls.calls import PlanCall, Refusal, RefusalCode
from spark.erase.reading.directory import Witness
from spark.formats.je.log import FILE_HEADER_BYTES, lsn_of
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import FakeLog
from tests.app.fake_clock import FakeClock

MOVED = Refusal(RefusalCode.LOG_MOVED, "the checkpoint is not there", file="00000002.jdb")
THERE = Witness(lsn_of(2, FILE_HEADER_BYTES), bytes(50))
GONE = replace(THERE, entry=b"\1" * 50)


@pytest.fixture
def log(tmp_path: Path) -> FakeLog:
    """Three files of zeros, which are what every witness finds; each file has two rounds."""
    directory = tmp_path / "environment"
    directory.mkdir()
    found = FakeLog(directory)
    for number in range(3):
        found.add(number, rounds=2)
    return found


@pytest.fixture
def erasers(sqlite_database: Database, tmp_path: Path, clock: FakeClock, log: FakeLog) -> Erasers:
    settings = Settings(data_dir=tmp_path / "data", erasure_wait_in_job_s=0.0, progress_interval_s=0.0)
    made = Erasers(sqlite_database, settings, clock, log)
    made.add_store()
    return made


def refuse_second_round(log: FakeLog) -> None:
    """The first file's second round finds another log."""
    log.on_round = lambda call: log.refuse("round", 0, *[MOVED] * (len(log.rounds_of(0)) == 1))


def plans(log: FakeLog) -> int:
    return sum(isinstance(call, PlanCall) for call in log.asked)


def test_rounds_carry_the_witness_of_their_plan(erasers: Erasers, log: FakeLog) -> None:
    log.witness = THERE
    erasers.begin()
    erasers.run()
    assert {call.witness for call in log.rounds_of(0) + log.rounds_of(1)} == {THERE}
    assert erasers.cycle().state == "COMPLETE"


def test_file_begun_is_finished_if_the_new_plan_would_erase_the_same(erasers: Erasers, log: FakeLog) -> None:
    log.witness = GONE
    refuse_second_round(log)
    erasers.begin()
    erasers.run()
    assert plans(log) == 2
    assert len(log.rounds_of(0)) == 3
    assert erasers.states() == {0: "ERASED", 1: "ERASED", 2: "NOT_SELECTED"}


def test_file_begun_is_left_if_the_new_plan_would_not_erase_the_rest(erasers: Erasers, log: FakeLog) -> None:
    log.witness = GONE
    refuse_second_round(log)

    def shrink(_call: PlanCall) -> None:
        if plans(log) == 1:
            log.files[0].rounds = 1

    log.on_plan = shrink
    erasers.begin()
    erasers.run()
    assert len(log.rounds_of(0)) == 2
    assert erasers.states() == {0: "REFUSED", 1: "ERASED", 2: "NOT_SELECTED"}
    assert (erasers.file(0).refusal or {})["code"] == "LOG_MOVED"
