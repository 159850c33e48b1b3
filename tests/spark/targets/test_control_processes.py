"""A writer process against protectors, with the writer stopped, continued and killed."""

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark.targets.files.control_file import ControlFile
from spark.targets.files.control_record import ProtectedRange
from tests.spark.targets import control_writer
from tests.spark.targets.control_descriptors import Unsynced
from tests.spark.targets.control_directory import make_environment
from tests.spark.targets.released import released

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 0.050
HOLD_S = 0.004
END_S = 10.0
POLL_S = 0.0005
EPOCH = 7


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = make_environment(tmp_path / "env")
    (made / "00000000.jdb").write_bytes(bytes(control_writer.WRITES * control_writer.BLOCK))
    with ControlFile.open(made, create=True) as file:
        assert file.change(lambda now: now.claimed(EPOCH)) is not None
    return made


@contextmanager
def writer(directory: Path, *switches: str) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, control_writer.__file__, directory, str(EPOCH), *switches],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.kill()
        child.wait(END_S)
        child.stdout.close()


def opened(directory: Path) -> ControlFile:
    """Without syncs: nobody loses power here, and a busy disk takes longer than the limit."""
    return ControlFile.open(directory, create=False, calls=Unsynced())


def digest(directory: Path) -> str:
    return hashlib.sha256((directory / "00000000.jdb").read_bytes()).hexdigest()


def until(condition, limit_s: float) -> bool:  # type: ignore[no-untyped-def]
    """Poll, as protectors do: the lower floor never waits."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def protect(file: ControlFile, held: ProtectedRange, *, limit_s: float = LIMIT_S) -> bool:
    """What a protector does before its 201; False is its 503."""
    start = time.monotonic()
    added = until(lambda: file.change(lambda now: now.protecting(held)) is not None, limit_s)
    left_s = limit_s - (time.monotonic() - start)
    if added and until(lambda: file.try_lock_file(0, exclusive=False), left_s):
        file.unlock_file(0)
        return True
    return False


def release(file: ControlFile, held: ProtectedRange) -> None:
    assert until(lambda: file.change(lambda now: released(now, held.id)) is not None, END_S)


def is_stopped(child: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{child.pid}/stat").read_text().rsplit(") ", 1)[1].startswith("T")


@pytest.mark.parametrize("attempts", [60, pytest.param(300, marks=pytest.mark.long)])
def test_no_byte_changes_between_a_201_and_its_end(directory: Path, attempts: int) -> None:
    """Every fifth time the writer is stopped wherever it is, and goes on in the middle of the protection."""
    rng = random.Random(attempts)
    granted, refused = 0, {True: 0, False: 0}
    seen = set()
    with writer(directory) as child, opened(directory) as file:
        for attempt in range(attempts):
            time.sleep(rng.random() * 0.006)
            is_stopping = attempt % 5 == 4
            if is_stopping:
                child.send_signal(signal.SIGSTOP)
                assert until(lambda: is_stopped(child), END_S)
            held = ProtectedRange(f"prt_{attempt}", "BACKUP", 0, None if attempt % 2 else 0)
            if protect(file, held):
                granted += 1
                before = digest(directory)
                child.send_signal(signal.SIGCONT)
                time.sleep(HOLD_S)
                assert digest(directory) == before, f"attempt {attempt}"
                seen.add(before)
            else:
                refused[is_stopping] += 1
                child.send_signal(signal.SIGCONT)
            release(file, held)
        assert child.poll() is None
    print(f"{granted} granted, refused with the writer stopped {refused[True]}, running {refused[False]}")
    # 50 ms are enough unless the machine is busy, or its disk: that is no fault of the protocol.
    assert granted >= attempts // 2
    assert len(seen) > granted // 2, "the writer was writing in between"


def test_killed_writer_frees_its_lock(directory: Path) -> None:
    with writer(directory, "--once", "--stop-in-round") as child:
        assert until(lambda: is_stopped(child), END_S)
        with ControlFile.open(directory, create=False) as file:
            assert not file.try_lock_file(0, exclusive=False)
            child.kill()
            child.wait(END_S)
            assert until(lambda: file.try_lock_file(0, exclusive=True), 1.0)


def test_writer_stopped_in_its_round_gets_a_503_and_wakes_to_stop(directory: Path) -> None:
    held = ProtectedRange("prt_1", "BACKUP", 0, None)
    with writer(directory, "--once", "--stop-in-round") as child:
        assert until(lambda: is_stopped(child), END_S)
        before = digest(directory)
        with ControlFile.open(directory, create=False) as file:
            assert not protect(file, held), "nothing is promised while a round is in work"
            child.send_signal(signal.SIGCONT)
            assert child.stdout is not None
            outcome = child.stdout.readline().split()
            assert outcome == ["STOPPED", str(control_writer.WRITES // 2 + 1)]
            assert digest(directory) == before, "it stopped at the very next write"
            assert protect(file, held, limit_s=END_S)


@pytest.mark.parametrize("cause", ["PROTECTED", "EPOCH_PASSED"])
def test_writer_stopped_between_claim_and_lock_wakes_and_writes_nothing(directory: Path, cause: str) -> None:
    held = ProtectedRange("prt_1", "BACKUP", 0, 0)
    with writer(directory, "--once", "--stop-before-lock") as child:
        assert until(lambda: is_stopped(child), END_S)
        before = digest(directory)
        with ControlFile.open(directory, create=False) as file:
            if cause == "PROTECTED":
                assert protect(file, held, limit_s=END_S)
            else:
                assert file.change(lambda now: now.claimed(EPOCH + 1)) is not None
        child.send_signal(signal.SIGCONT)
        assert child.stdout is not None
        assert child.stdout.readline().split() == [cause, "0"]
        assert digest(directory) == before
