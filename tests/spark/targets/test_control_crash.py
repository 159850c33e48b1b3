"""Crashes before every system call of creation, change, reading, rebuilding; failing calls; lost power."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark.targets.files.control_errors import ControlError, ControlFileInvalid
from spark.targets.files.control_file import NAME, ControlFile
from spark.targets.files.control_record import ControlRecord
from spark.targets.files.system_calls import SystemCalls
from tests.spark.targets.control_directory import (
    BACKUP,
    SCAN,
    counter,
    make_environment,
    names,
    put_counter,
    tear,
)
from tests.spark.targets.dying_calls import PowerLoss, Process
from tests.spark.targets.released import released

DEATHS_MAX = 60


def create(directory: Path) -> Callable[[SystemCalls], None]:
    return lambda calls: ControlFile.open(directory, create=True, calls=calls).close()


def change(directory: Path) -> Callable[[SystemCalls], None]:
    def work(calls: SystemCalls) -> None:
        with ControlFile.open(directory, create=False, calls=calls) as file:
            assert file.change(lambda now: now.protecting(SCAN)) is not None

    return work


def every_death(tmp_path: Path, prepare: Callable[[Path], Any], work: Any) -> Any:
    """Yield a fresh directory for each system call before which the process was killed; then one alive."""
    for dies_at in range(DEATHS_MAX):
        directory = make_environment(tmp_path / str(dies_at))
        before = prepare(directory)
        has_ended = Process(dies_at).run(work(directory))
        yield directory, before, has_ended
        if has_ended:
            return
    raise AssertionError("more system calls than deaths")


def prepared(directory: Path) -> ControlRecord:
    with ControlFile.open(directory, create=True) as file:
        record = file.change(lambda now: now.protecting(BACKUP).claimed(4))
    assert record is not None
    return record


def test_creation_killed_anywhere_is_mended_by_the_next_opener(tmp_path: Path) -> None:
    seen = set()
    for directory, _, _ in every_death(tmp_path, lambda _: None, create):
        seen.add(NAME in names(directory))
        if NAME in names(directory):
            with ControlFile.open(directory, create=False) as file:
                assert file.read().generation == 1, "it is whole as soon as it can be seen"
        with ControlFile.open(directory, create=True) as file:
            assert (file.read().ranges, file.read().epoch, file.stop_counter()) == ((), 0, 1)
            assert file.change(lambda now: now.protecting(BACKUP)) is not None
        assert names(directory) == ["00000000.jdb", NAME], "nothing unfinished is left"
        assert os.stat(directory / NAME).st_mode & 0o777 == 0o640
    assert seen == {False, True}


def test_change_killed_anywhere_leaves_the_old_record_or_the_new_one(tmp_path: Path) -> None:
    seen = set()
    for directory, before, has_ended in every_death(tmp_path, prepared, change):
        behind = counter(directory)
        with ControlFile.open(directory, create=False) as file:
            record = file.read()
            assert record in (before, replace(before, generation=3, stop=3, ranges=(BACKUP, SCAN)))
            assert file.stop_counter() == record.stop, "who reads has raised it"
            assert behind <= record.stop
            assert record != before or not has_ended
            after = file.change(lambda now: released(now, BACKUP.id))
            assert after is not None, "the lock of the dead is free"
            assert after.generation == record.generation + 1
        seen.add((record == before, behind == record.stop))
    assert seen == {(True, True), (False, False), (False, True)}


def test_rebuild_killed_anywhere_leaves_an_invalid_file_or_a_whole_one(tmp_path: Path) -> None:
    def damaged(directory: Path) -> ControlRecord:
        record = prepared(directory)
        tear(directory, 0)
        tear(directory, 1)
        return record

    def rebuild(directory: Path) -> Callable[[SystemCalls], None]:
        return lambda calls: _assert_there(ControlFile.rebuild(directory, [SCAN], epoch=5, calls=calls))

    seen = set()
    for directory, before, has_ended in every_death(tmp_path, damaged, rebuild):
        try:
            with ControlFile.open(directory, create=False) as file:
                record = file.read()
        except ControlFileInvalid:
            record = None
        seen.add(record is None)
        assert record is not None or not has_ended
        again = ControlFile.rebuild(directory, [SCAN], epoch=5)
        assert again is not None
        assert (again.epoch, again.ranges) == (5, (SCAN,))
        assert again.stop > before.stop
    assert seen == {True, False}


def test_rebuild_of_a_short_file_killed_anywhere_can_be_done_again(tmp_path: Path) -> None:
    def cut(directory: Path) -> None:
        prepared(directory)
        os.truncate(directory / NAME, 100)

    def rebuild(directory: Path) -> Callable[[SystemCalls], None]:
        return lambda calls: _assert_there(ControlFile.rebuild(directory, [SCAN], epoch=5, calls=calls))

    for directory, _, _ in every_death(tmp_path, cut, rebuild):
        again = ControlFile.rebuild(directory, [SCAN], epoch=5)
        assert again is not None
        with ControlFile.open(directory, create=False) as file:
            assert file.read() == again


def test_mending_of_the_counter_killed_anywhere_is_done_by_the_next_reader(tmp_path: Path) -> None:
    def behind(directory: Path) -> ControlRecord:
        record = prepared(directory)
        put_counter(directory, record.stop - 1)
        return record

    def read(directory: Path) -> Callable[[SystemCalls], None]:
        return lambda calls: ControlFile.open(directory, create=False, calls=calls).close()

    for directory, before, _ in every_death(tmp_path, behind, read):
        with ControlFile.open(directory, create=False) as file:
            assert file.read() == before
            assert file.stop_counter() == before.stop


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize(("prepare", "work"), [(lambda _: None, create), (prepared, change)])
def test_any_failing_call_is_a_named_error_and_holds_no_lock(
    tmp_path: Path, code: int, prepare, work
) -> None:  # type: ignore[no-untyped-def]
    failed, unnamed = 0, set()
    for fails_at in range(DEATHS_MAX):
        directory = make_environment(tmp_path / str(fails_at))
        prepare(directory)
        process = Process(fails_at, fails=code)
        try:
            process.run(work(directory))
        except ControlError:
            failed += 1
        except OSError:
            unnamed.add(process.made[fails_at])
        else:
            if len(process.made) <= fails_at:
                break
        with ControlFile.open(directory, create=True) as file:
            assert file.change(lambda now: now) is not None
    assert failed > 5
    # Closing and unlocking do not fail in earnest; a question about an open descriptor neither.
    assert unnamed <= {"close", "release", "release_all", "try_exclusive", "fstat"}


def test_power_lost_at_any_moment_leaves_what_was_synced_or_what_came_after(tmp_path: Path) -> None:
    """Any subset of the writes since the last sync, each whole, torn at any sector, or lost."""
    directory = make_environment(tmp_path / "env")
    many = [replace(BACKUP, id=f"prt_{n:026d}", first=n, last=n) for n in range(60)]
    with ControlFile.open(directory, create=True) as file:
        assert file.change(lambda now: now.protecting(*many)) is not None
    disk = PowerLoss(directory / NAME)
    history = []
    with ControlFile.open(directory, create=False, calls=disk) as file:
        history.append((file.read(), 0))
        for _ in range(4):
            record = file.change(lambda now: now.protecting(replace(SCAN, first=now.stop)))
            assert record is not None
            history.append((record, disk.syncs))

    assert len(disk.images) > 20
    for image, syncs in disk.images.items():
        (directory / NAME).write_bytes(image)
        with ControlFile.open(directory, create=False) as file:
            found = file.read()
            assert file.stop_counter() == found.stop
        promised = max(record.generation for record, synced in history if synced <= syncs)
        assert found in [record for record, _ in history]
        assert found.generation >= promised


def _assert_there(record: ControlRecord | None) -> None:
    assert record is not None
