"""Locks on single bytes: against other descriptors of this process, and against other processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.targets.files import ofd_lock
from spark.targets.files.control_errors import LockFailed

POSIX_CHILD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_SH if sys.argv[2] == "READ" else fcntl.LOCK_EX, 1, int(sys.argv[3]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[int, int]]:
    path = tmp_path / "locked"
    path.write_bytes(b"")
    first, second = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)
    yield first, second
    os.close(first)
    os.close(second)


def holding_child(path: Path, kind: str, byte: int) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-c", POSIX_CHILD, path, kind, str(byte)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    return child


def end(child: subprocess.Popen[bytes]) -> None:
    child.communicate(b"", timeout=10)


@pytest.mark.parametrize("byte", [0, 7, 2**62])
def test_exclusive_lock_keeps_others_of_the_same_process_out(two: tuple[int, int], byte: int) -> None:
    first, second = two

    assert ofd_lock.try_exclusive(first, byte)
    assert not ofd_lock.try_exclusive(second, byte)
    assert not ofd_lock.try_shared(second, byte)
    ofd_lock.release(first, byte)
    assert ofd_lock.try_exclusive(second, byte)


def test_shared_locks_are_held_together_and_keep_an_exclusive_one_out(two: tuple[int, int]) -> None:
    first, second = two

    assert ofd_lock.try_shared(first, 3)
    assert ofd_lock.try_shared(second, 3)
    assert not ofd_lock.try_exclusive(first, 3)
    ofd_lock.release(second, 3)
    assert ofd_lock.try_exclusive(first, 3)


def test_neighbouring_bytes_are_locks_of_their_own(two: tuple[int, int]) -> None:
    first, second = two

    assert ofd_lock.try_exclusive(first, 5)
    assert ofd_lock.try_exclusive(second, 4)
    assert ofd_lock.try_exclusive(second, 6)


def test_is_free_asks_without_taking(two: tuple[int, int]) -> None:
    first, second = two

    assert ofd_lock.is_free(second, 1, exclusive=True)
    assert ofd_lock.try_shared(first, 1)
    assert ofd_lock.is_free(second, 1, exclusive=False)
    assert not ofd_lock.is_free(second, 1, exclusive=True)
    assert ofd_lock.is_free(first, 1, exclusive=True)
    assert ofd_lock.try_shared(second, 1)


def test_closing_a_third_descriptor_drops_nothing(two: tuple[int, int], tmp_path: Path) -> None:
    first, second = two

    assert ofd_lock.try_exclusive(first, 1)
    os.close(os.open(tmp_path / "locked", os.O_RDWR))
    assert not ofd_lock.try_exclusive(second, 1)


def test_all_locks_of_a_descriptor_are_given_back_even_if_a_child_shares_it(two: tuple[int, int]) -> None:
    first, second = two
    for byte in (0, 5, 2**62):
        assert ofd_lock.try_exclusive(first, byte)
    sharing = os.dup(first)  # as a child between fork and exec does

    ofd_lock.release_all(first)

    assert all(ofd_lock.try_exclusive(second, byte) for byte in (0, 5, 2**62))
    os.close(sharing)


def test_last_close_frees(two: tuple[int, int], tmp_path: Path) -> None:
    third = os.open(tmp_path / "locked", os.O_RDWR)
    assert ofd_lock.try_exclusive(third, 1)
    os.close(third)
    assert ofd_lock.try_exclusive(two[0], 1)


@pytest.mark.parametrize("kind", ["READ", "WRITE"])
def test_posix_lock_of_another_process_is_named_and_respected(
    two: tuple[int, int], tmp_path: Path, kind: str
) -> None:
    child = holding_child(tmp_path / "locked", kind, 1)
    try:
        holder = ofd_lock.posix_holder(two[0], 1)
        assert holder == ofd_lock.Holder(kind, child.pid)
        assert not ofd_lock.try_exclusive(two[0], 1)
        assert ofd_lock.try_shared(two[0], 1) == (kind == "READ")
        assert ofd_lock.posix_holder(two[0], 0) is None
    finally:
        end(child)
    ofd_lock.release(two[0], 1)
    assert ofd_lock.posix_holder(two[0], 1) is None


def test_lock_of_a_descriptor_has_no_pid(two: tuple[int, int]) -> None:
    assert ofd_lock.try_exclusive(two[0], 2**62)
    assert ofd_lock.posix_holder(two[1], 2**62) == ofd_lock.Holder("WRITE", -1)


def test_child_started_without_fork_does_not_keep_the_lock(two: tuple[int, int], tmp_path: Path) -> None:
    third = os.open(tmp_path / "locked", os.O_RDWR | os.O_CLOEXEC)
    assert ofd_lock.try_exclusive(third, 1)
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        os.close(third)
        assert ofd_lock.try_exclusive(two[0], 1)
    finally:
        end(child)


def test_descriptor_without_the_right_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "locked").write_bytes(b"")
    reading = os.open(tmp_path / "locked", os.O_RDONLY)
    try:
        with pytest.raises(LockFailed, match="byte 1: Bad file descriptor"):
            ofd_lock.try_exclusive(reading, 1)
    finally:
        os.close(reading)
