"""A plan keeps JE out where it can be in, and makes nothing, not even JE's lock file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lethe_samples.je_writer.sample import write_sample
from spark.erase.calls.calls import PlanAnswer, PlanCall, RefusalCode
from spark.erase.calls.refusing import Refused
from spark.erase.calls.request import PlanRequest
from spark.erase.errors import LogFileChanged
from spark.erase.overwrite.log_at_rest import log_at_rest
from spark.erase.unit import do
from spark.targets.files import ofd_lock

LOCK = "je.lck"


def is_locked(directory: Path) -> bool:
    descriptor = os.open(directory / LOCK, os.O_RDWR)
    try:
        return not ofd_lock.try_exclusive(descriptor, 0)
    finally:
        os.close(descriptor)


def test_plan_of_an_environment_that_nobody_has_opened_makes_nothing(tmp_path: Path) -> None:
    write_sample(tmp_path, total_bytes=100_000)
    (tmp_path / LOCK).unlink(missing_ok=True)
    before = sorted(path.name for path in tmp_path.iterdir())
    answer = do(PlanCall(str(tmp_path), PlanRequest()))
    assert isinstance(answer, PlanAnswer)
    assert (answer.refusal, len(answer.files) > 0) == (None, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_lock_file_that_is_there_is_locked(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    with log_at_rest(tmp_path):
        assert is_locked(tmp_path)
    assert not is_locked(tmp_path)


def test_engine_that_came_in_meanwhile_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught, log_at_rest(tmp_path):
        (tmp_path / LOCK).touch()
    assert caught.value.refusal.code == RefusalCode.ENVIRONMENT_IN_USE


def test_log_that_moved_under_an_engine_that_came_in_is_no_broken_log(tmp_path: Path) -> None:
    def read() -> None:
        with log_at_rest(tmp_path):
            (tmp_path / LOCK).touch()
            raise LogFileChanged("it grew", file="00000000.jdb")

    with pytest.raises(Refused) as caught:
        read()
    assert caught.value.refusal.code == RefusalCode.ENVIRONMENT_IN_USE
