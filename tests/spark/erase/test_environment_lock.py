"""JE's lock bytes, against processes that hold them as JE does (POSIX record locks)."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark.erase.overwrite import environment_lock
from spark.erase.overwrite.environment_lock import NAME, try_lock
from spark.targets.files.control_errors import ControlFileMissing, NotRegular, PermissionRefused

JE = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_SH if sys.argv[2] == "READ" else fcntl.LOCK_EX, 1, int(sys.argv[3]))
print("held", flush=True)
sys.stdin.read()
"""
TRY = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
kind = fcntl.LOCK_SH if sys.argv[2] == "READ" else fcntl.LOCK_EX
try:
    fcntl.lockf(fd, kind | fcntl.LOCK_NB, 1, int(sys.argv[3]))
except OSError:
    sys.exit(1)
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "00000000.jdb").write_bytes(b"log")
    (tmp_path / "00000000.jdb").chmod(0o660)
    return tmp_path


@contextmanager
def je_process(directory: Path, kind: str, byte: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", JE, directory / NAME, kind, str(byte)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    try:
        yield child
    finally:
        child.communicate(b"", timeout=10)


def je_could_open(directory: Path, kind: str, byte: int) -> bool:
    command = [sys.executable, "-c", TRY, directory / NAME, kind, str(byte)]
    return subprocess.run(command, check=False).returncode == 0


def test_held_lock_keeps_je_out_until_it_is_released(directory: Path) -> None:
    lock = try_lock(directory)
    assert lock is not None
    with lock:
        assert not je_could_open(directory, "WRITE", 0)
        assert not je_could_open(directory, "READ", 1)
        assert environment_lock.is_in_use(directory)
        assert not environment_lock.reader_present(directory), "a write lock is no reader"
        assert try_lock(directory) is None
    assert je_could_open(directory, "WRITE", 0)
    assert je_could_open(directory, "READ", 1)
    assert not environment_lock.is_in_use(directory)
    lock.release()


def test_writing_je_keeps_us_out(directory: Path) -> None:
    with je_process(directory, "WRITE", 0) as je:
        assert try_lock(directory) is None
        assert environment_lock.is_in_use(directory)
        assert not environment_lock.reader_present(directory)
        je.kill()
        je.wait()
        lock = try_lock(directory)
        assert lock is not None, "a dead process holds nothing"
        lock.release()


def test_reading_je_keeps_us_out_and_leaves_the_byte_of_the_writer_free(directory: Path) -> None:
    with je_process(directory, "READ", 1):
        assert try_lock(directory) is None
        assert environment_lock.reader_present(directory)
        assert environment_lock.is_in_use(directory)
        assert je_could_open(directory, "WRITE", 0), "what we took of the two was given back"
        assert je_could_open(directory, "READ", 1)


def test_cleaner_on_the_readers_byte_is_no_reader(directory: Path) -> None:
    with je_process(directory, "WRITE", 1):
        assert not environment_lock.reader_present(directory)
        assert try_lock(directory) is None


def test_missing_lock_file_is_made_like_the_newest_log_file(directory: Path) -> None:
    assert not environment_lock.is_in_use(directory)
    assert not environment_lock.reader_present(directory)
    assert not (directory / NAME).exists(), "asking makes nothing"

    lock = try_lock(directory)

    assert lock is not None
    lock.release()
    status = (directory / NAME).stat()
    assert (status.st_size, stat.S_IMODE(status.st_mode)) == (0, 0o660)
    assert sorted(os.listdir(directory)) == ["00000000.jdb", NAME]


def test_lock_file_that_is_there_keeps_its_bytes_and_mode(directory: Path) -> None:
    (directory / NAME).write_bytes(b"je")
    (directory / NAME).chmod(0o600)
    lock = try_lock(directory)
    assert lock is not None
    lock.release()
    assert (directory / NAME).read_bytes() == b"je"
    assert stat.S_IMODE((directory / NAME).stat().st_mode) == 0o600


def test_nothing_to_take_the_owner_from_is_refused_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(PermissionRefused):
        try_lock(tmp_path)
    assert os.listdir(tmp_path) == []
    with pytest.raises(ControlFileMissing):
        try_lock(tmp_path / "nowhere")


def test_link_is_not_followed(directory: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    (directory / NAME).symlink_to(target)
    for ask in (try_lock, environment_lock.is_in_use, environment_lock.reader_present):
        with pytest.raises(NotRegular):
            ask(directory)
    assert not target.exists()
