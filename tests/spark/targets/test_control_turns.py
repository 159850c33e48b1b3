"""Processes that meet in the control file, one system call at a time: creators, changers, readers."""

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spark.targets.files.control_file import NAME, ControlFile
from spark.targets.files.control_record import ControlRecord, ProtectedRange
from spark.targets.files.system_calls import SystemCalls
from tests.spark.targets.control_directory import BACKUP, SCAN, counter, make_environment, names
from tests.spark.targets.dying_calls import Turns
from tests.spark.targets.released import released

CHANGES_MAX = 400


def schedules(count: int, actors: int) -> list[list[int]]:
    """Half of them switch at every call, half go on for a while."""
    found = []
    for seed in range(count):
        rng = random.Random(seed)
        turns: list[int] = []
        while len(turns) < 200:
            turns += [rng.randrange(actors)] * (1 if seed % 2 else rng.randrange(1, 25))
        found.append(turns)
    return found


def changed(file: ControlFile, edit: Any) -> ControlRecord:
    for _ in range(CHANGES_MAX):
        record = file.change(edit)
        if record is not None:
            return record
    raise AssertionError("the record was busy for ever")


def protected(directory: Path, held: ProtectedRange, calls: SystemCalls) -> list[ControlRecord]:
    """One protection from its beginning to its end: the two records that it wrote."""
    with ControlFile.open(directory, create=False, calls=calls) as file:
        first = changed(file, lambda now: now.protecting(held))
        assert held in file.read().ranges
        return [first, changed(file, lambda now: released(now, held.id))]


def read_often(directory: Path, calls: SystemCalls) -> list[ControlRecord]:
    with ControlFile.open(directory, create=False, calls=calls) as file:
        return [file.read() for _ in range(4)]


def rebuilt(directory: Path, held: ProtectedRange, epoch: int, calls: SystemCalls) -> ControlRecord:
    for _ in range(CHANGES_MAX):
        record = ControlFile.rebuild(directory, [held], epoch=epoch, calls=calls)
        if record is not None:
            return record
    raise AssertionError("the record was busy for ever")


def created(directory: Path, calls: SystemCalls) -> ControlRecord:
    with ControlFile.open(directory, create=True, calls=calls) as file:
        return file.read()


@pytest.mark.parametrize("count", [60, pytest.param(600, marks=pytest.mark.long)])
def test_creators_at_once_open_one_whole_file(tmp_path: Path, count: int) -> None:
    for number, schedule in enumerate(schedules(count, 3)):
        directory = make_environment(tmp_path / str(number))

        results = Turns([partial(created, directory)] * 3).go(schedule)

        with ControlFile.open(directory, create=False) as file:
            assert results == [file.read()] * 3
        assert names(directory) == ["00000000.jdb", NAME]


@pytest.mark.parametrize("count", [80, pytest.param(800, marks=pytest.mark.long)])
def test_protectors_at_once_lose_no_range_and_readers_see_only_what_was_written(
    tmp_path: Path, count: int
) -> None:
    directory = make_environment(tmp_path / "env")
    ControlFile.open(directory, create=True).close()
    for number, schedule in enumerate(schedules(count, 3)):
        with ControlFile.open(directory, create=False) as file:
            before = file.read()

        by_a, by_b, seen = Turns(
            [
                partial(protected, directory, replace(BACKUP, id=f"a{number}")),
                partial(protected, directory, replace(SCAN, id=f"b{number}")),
                partial(read_often, directory),
            ]
        ).go(schedule)

        written = {record.generation: record for record in [before, *by_a, *by_b]}
        assert len(written) == 5, "every change has a generation of its own"
        assert all(record == written[record.generation] for record in seen)
        generations = [record.generation for record in seen]
        assert generations == sorted(generations)
        last = written[max(written)]
        assert last.ranges == before.ranges
        assert last.stop == counter(directory) == before.stop + 2


def test_rebuilders_at_once_lower_nothing_and_lose_nothing(tmp_path: Path) -> None:
    for number, schedule in enumerate(schedules(30, 2)):
        directory = make_environment(tmp_path / str(number))
        (directory / NAME).write_bytes(b"")

        results = Turns([partial(rebuilt, directory, BACKUP, 3), partial(rebuilt, directory, SCAN, 2)]).go(
            schedule
        )

        assert all(isinstance(result, ControlRecord) for result in results), results
        with ControlFile.open(directory, create=False) as file:
            record = file.read()
        assert record.epoch == 3
        assert set(record.ranges) == {BACKUP, SCAN}
