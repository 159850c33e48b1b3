"""What is worth keeping of a control file that is not valid, and what a reader makes of a moment."""

import os
import shutil
from pathlib import Path

import pytest

from spark.targets.files.control_errors import ControlFileInvalid, PermissionRefused
from spark.targets.files.control_file import NAME, ControlFile
from spark.targets.files.control_record import SLOT_BYTES
from spark.targets.files.system_calls import SystemCalls
from tests.spark.targets.control_directory import BACKUP, SCAN, make_environment, names, put_counter, tear
from tests.spark.targets.released import released


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return make_environment(tmp_path / "env")


class TornReads(SystemCalls):
    """Slots are read while they are written, so many times."""

    def __init__(self, times: int) -> None:
        self.left = 2 * times

    def pread(self, fd: int, count: int, offset: int) -> bytes:
        data = super().pread(fd, count, offset)
        if count < SLOT_BYTES or not self.left:
            return data
        self.left -= 1
        return data[:20] + b"torn" + data[24:]


class NotOwner(SystemCalls):
    """Somebody who may not give files away."""

    def fchown(self, fd: int, uid: int, gid: int) -> None:
        raise PermissionError(1, os.strerror(1))


def test_slots_that_were_both_written_while_they_were_read_are_read_again(directory: Path) -> None:
    with ControlFile.open(directory, create=True) as busy:
        expected = busy.read()

        def meanwhile(now):  # type: ignore[no-untyped-def]
            with ControlFile.open(directory, create=False, calls=TornReads(5)) as file:
                assert file.read() == expected
            with pytest.raises(ControlFileInvalid):
                ControlFile.open(directory, create=False, calls=TornReads(100))
            return now

        assert busy.change(meanwhile) is not None


def test_stop_of_a_readable_slot_is_not_lowered_even_if_the_counter_is_lost(
    directory: Path, tmp_path: Path
) -> None:
    with ControlFile.open(directory, create=True) as file:
        for _ in range(5):
            before = file.change(lambda now: released(now, BACKUP.id).claimed(now.epoch + 1))
    assert before is not None
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    put_counter(copy, 0)
    tear(copy, 0)

    record = ControlFile.rebuild(copy, [SCAN], epoch=1)

    assert record is not None
    assert record.stop >= before.stop
    assert record.epoch >= before.epoch - 1, "one of the two slots was to be read"


def test_owner_that_cannot_be_given_is_refused_and_leaves_nothing(directory: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make the log file another one's")
    os.chown(directory / "00000000.jdb", 1234, 4321)

    with pytest.raises(PermissionRefused, match=NAME):
        ControlFile.open(directory, create=True, calls=NotOwner())

    assert names(directory) == ["00000000.jdb"]


def test_names_that_others_gave_are_not_cleared_away(directory: Path) -> None:
    for name in (f"{NAME}.bak", f"{NAME}new", "other.new"):
        (directory / name).write_bytes(b"")
    ControlFile.open(directory, create=True).close()
    assert names(directory) == ["00000000.jdb", NAME, f"{NAME}.bak", f"{NAME}new", "other.new"]


def test_descriptor_that_crossed_a_fork_is_refused(directory: Path) -> None:
    with ControlFile.open(directory, create=True) as file:
        file._pid += 1  # what a forked child would find
        with pytest.raises(AssertionError, match="crossed a fork"):
            file.try_lock_file(1, exclusive=True)
        with pytest.raises(AssertionError, match="crossed a fork"):
            file.change(lambda now: now)
