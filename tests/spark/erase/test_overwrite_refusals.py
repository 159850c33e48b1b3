"""What forbids a round, and that nothing is written then; errors of the disk in the middle of one."""

import errno
import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spark.erase.calls.calls import (
    Mode,
    PlanAnswer,
    PlanCall,
    PlannedFile,
    RefusalCode,
    RoundAnswer,
    RoundCall,
    Step,
)
from spark.erase.calls.request import PlanRequest
from spark.erase.overwrite.environment_lock import try_lock
from spark.erase.overwrite.file_layer import FileLayer
from spark.erase.unit import do
from spark.targets.files.control_file import ControlFile
from spark.targets.files.control_record import ProtectedRange
from tests.spark.erase.hands_at_work import (
    Failing,
    Meddling,
    Traced,
    claim,
    contents,
    overwrite,
    plan,
    planned_bytes,
    prepare,
    protect,
    prove,
    raise_stop,
    rounds_of,
)
from tests.spark.targets.released import released

FIRST = "00000000.jdb"


@pytest.fixture
def work(copy_of: Callable[[str], Path]) -> tuple[Path, PlannedFile, RoundCall]:
    """A claimed environment, its first file as planned, and the first round of it."""
    directory = copy_of("closed")
    claim(directory)
    file = plan(directory).files[0]
    return directory, file, next(rounds_of(directory, file, rows=500))


Work = tuple[Path, PlannedFile, RoundCall]


def assert_refused(work: Work, code: RefusalCode, step: Step, call: RoundCall | None = None) -> RoundAnswer:
    """The round is refused where it should be, and no byte of the environment has changed."""
    directory, _, planned = work
    before = contents(directory)
    layer = Traced()
    answer = overwrite(call or planned, layer)
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.step, answer.entries_done) == (code, step, 0)
    assert layer.seen == []
    assert contents(directory) == before
    return answer


def test_other_epoch_is_refused(work: Work) -> None:
    answer = assert_refused(work, RefusalCode.EPOCH_PASSED, Step.LOCK, replace(work[2], epoch=6))
    assert answer.refusal is not None
    assert answer.refusal.ref == "7"
    assert_refused(work, RefusalCode.EPOCH_PASSED, Step.LOCK, replace(work[2], epoch=8))


def test_protected_file_is_refused_with_the_ids_of_its_protections(work: Work) -> None:
    held = [
        ProtectedRange("prt_b", "BACKUP", 0, 0),
        ProtectedRange("prt_a", "SCAN", 0, None),
        ProtectedRange("prt_c", "BACKUP", 1, 3),
    ]
    protect(work[0], *held)
    answer = assert_refused(work, RefusalCode.PROTECTED, Step.LOCK)
    assert answer.refusal is not None
    assert (answer.refusal.ref, answer.refusal.file) == ("prt_a,prt_b", FIRST)
    with ControlFile.open(work[0], create=False) as control:
        control.change(lambda record: released(record, "prt_a", "prt_b"))
    assert overwrite(work[2]).step == Step.DONE


def test_file_whose_byte_somebody_holds_is_refused(work: Work) -> None:
    with ControlFile.open(work[0], create=False) as control:
        assert control.try_lock_file(0, exclusive=False)
        assert_refused(work, RefusalCode.FILE_LOCKED, Step.LOCK)
    assert overwrite(work[2]).step == Step.DONE
    with ControlFile.open(work[0], create=False) as control:
        assert control.try_lock_file(0, exclusive=True)


def test_environment_held_by_another_descriptor_is_refused(work: Work) -> None:
    lock = try_lock(work[0])
    assert lock is not None
    with lock:
        assert_refused(work, RefusalCode.ENVIRONMENT_IN_USE, Step.LOCK)
        answer = do(PlanCall(str(work[0]), PlanRequest()))
        assert isinstance(answer, PlanAnswer)
        assert answer.refusal is not None
        assert answer.refusal.code == RefusalCode.ENVIRONMENT_IN_USE
        # Beside a JE process these locks are not asked for.
        assert overwrite(replace(work[2], mode=Mode.LIVE)).step == Step.DONE
    assert overwrite(replace(work[2], is_first=False)).step == Step.DONE


@pytest.mark.parametrize(("kind", "byte"), [(fcntl.LOCK_EX, 0), (fcntl.LOCK_SH, 1)])
def test_environment_that_je_has_open_is_refused(work: Work, kind: int, byte: int) -> None:
    lock_file = work[0] / "je.lck"
    lock_file.touch()
    holder = (
        "import fcntl, sys\n"
        f"file = open({str(lock_file)!r}, 'r+b')\n"
        f"fcntl.lockf(file, {kind} | fcntl.LOCK_NB, 1, {byte})\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert_refused(work, RefusalCode.ENVIRONMENT_IN_USE, Step.LOCK)
        assert process.stdin is not None
        process.stdin.close()
    assert overwrite(work[2]).step == Step.DONE


def test_missing_or_damaged_control_file_is_refused(work: Work) -> None:
    control = work[0] / "lethe.control"
    copy = control.with_suffix(".copy")
    copy.write_bytes(control.read_bytes())
    control.unlink()
    answer = assert_refused(work, RefusalCode.CONTROL_FILE_INVALID, Step.LOCK)
    assert answer.refusal is not None
    assert answer.refusal.ref == "CONTROL_FILE_MISSING"
    copy.rename(control)
    answer = assert_refused(work, RefusalCode.CONTROL_FILE_INVALID, Step.LOCK)
    assert answer.refusal is not None
    assert answer.refusal.ref == "CONTROL_FILE_INVALID"


def vanish(path: Path) -> None:
    path.unlink()


def replace_by_the_same_bytes(path: Path) -> None:
    data = path.read_bytes()
    path.rename(path.with_suffix(".old"))
    path.write_bytes(data)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def link(path: Path) -> None:
    os.link(path, path.with_suffix(".snapshot"))


def become_a_link(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def become_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def touch(path: Path) -> None:
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


DEEDS = [
    (vanish, RefusalCode.ALREADY_DELETED),
    (replace_by_the_same_bytes, RefusalCode.FILE_REPLACED),
    (grow, RefusalCode.FILE_RESIZED),
    (cut, RefusalCode.FILE_RESIZED),
    (link, RefusalCode.HARD_LINKED),
    (become_a_link, RefusalCode.FILE_REPLACED),
    (touch, RefusalCode.FILE_TOUCHED),
]


@pytest.mark.parametrize(("deed", "code"), DEEDS)
def test_file_that_is_not_what_it_was_is_refused(
    work: Work, deed: Callable[[Path], None], code: RefusalCode
) -> None:
    directory, file, call = work
    deed(directory / FIRST)
    answer = assert_refused(work, code, Step.CHECK)
    assert answer.refusal is not None
    assert answer.refusal.file == FIRST
    hashed = prepare(directory, file)
    assert hashed.refusal is not None
    assert (hashed.refusal.code, hashed.sha256_now) == (code, "")
    if code == RefusalCode.FILE_TOUCHED:
        # Once we have written, it is our own touch that counts.
        assert prepare(directory, file, was_written=True).refusal is None
        assert overwrite(replace(call, is_first=False)).step == Step.DONE
    elif code != RefusalCode.HARD_LINKED:
        proof = prove(directory, file, "")
        assert proof.refusal is not None
        assert (proof.refusal.code, proof.is_proved) == (code, False)


@pytest.mark.parametrize("deed", [become_a_pipe, become_a_folder])
def test_what_is_no_file_is_refused(work: Work, deed: Callable[[Path], None]) -> None:
    deed(work[0] / FIRST)
    answer = overwrite(work[2])
    assert answer.refusal is not None
    assert answer.refusal.code in (RefusalCode.FILE_REPLACED, RefusalCode.DISK_ERROR)


@pytest.mark.parametrize("mode", [Mode.CLOSED, Mode.LIVE])
@pytest.mark.parametrize("at", [0, 4, 5, 6, 10])
def test_other_header_is_refused(work: Work, at: int, mode: Mode) -> None:
    directory, file, call = work
    kind, _, _ = list(planned_bytes(file))[250]
    with (directory / FIRST).open("r+b") as log:
        log.seek(kind - 4 + at)
        byte = log.read(1)[0] ^ 1
        log.seek(kind - 4 + at)
        log.write(bytes([byte]))
    call = replace(call, is_first=False, mode=mode)
    answer = assert_refused(work, RefusalCode.HEADER_CHANGED, Step.CHECK, call)
    assert answer.refusal is not None
    assert (answer.refusal.file, answer.refusal.offset) == (FIRST, kind - 4)
    hashed = prepare(directory, file, was_written=True)
    assert hashed.refusal is not None
    assert (hashed.refusal.code, hashed.refusal.offset) == (RefusalCode.HEADER_CHANGED, kind - 4)


def test_unwritable_file_is_refused(work: Work) -> None:
    class Locked(FileLayer):
        def open(self, path: Path, flags: int) -> int:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    answer = overwrite(work[2], Locked())
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.refusal.ref) == (RefusalCode.PERMISSION, "EACCES")


@pytest.mark.parametrize("mode", [Mode.CLOSED, Mode.LIVE])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_write_that_fails_ends_the_file_and_says_where(work: Work, mode: Mode, code: int) -> None:
    directory, file, _ = work
    call = next(rounds_of(directory, file, mode=mode, rows=6))
    before = (directory / FIRST).read_bytes()
    steps = []
    for at in range(1, 100):
        (directory / FIRST).write_bytes(before)
        layer = Failing(kind="write", at=at, errno=code)
        answer = overwrite(replace(call, is_first=False) if at > 1 else with_mtime(call, directory), layer)
        if answer.refusal is None:
            break
        assert (answer.refusal.code, answer.entries_done) == (RefusalCode.DISK_ERROR, 0)
        assert answer.refusal.ref == errno.errorcode[code]
        assert answer.refusal.offset is not None
        assert is_legal((directory / FIRST).read_bytes(), before, file)
        steps.append(answer.step)
    assert steps == sorted(steps, key=list(Step).index)
    assert {Step.TOUCH, Step.OVERWRITE} <= set(steps)


def with_mtime(call: RoundCall, directory: Path) -> RoundCall:
    mtime_ns = (directory / FIRST).stat().st_mtime_ns
    return replace(call, identity=replace(call.identity, mtime_ns=mtime_ns))


def is_legal(now: bytes, before: bytes, file: PlannedFile) -> bool:
    """Every planned entry is as it was, or has type 43; nothing else has changed."""
    rest = bytearray(now)
    for kind, begin, end in planned_bytes(file):
        if now[kind] == 43:
            rest[kind] = before[kind]
            rest[begin:end] = before[begin:end]
    return rest == before


@pytest.mark.parametrize("at", [1, 2, 3])
def test_sync_that_fails_is_unproven_and_not_tried_again(work: Work, at: int) -> None:
    directory, file, call = work
    before = (directory / FIRST).read_bytes()
    layer = Failing(kind="fsync", at=at)
    answer = overwrite(call, layer)
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.refusal.ref) == (RefusalCode.UNPROVEN, "EIO")
    assert (answer.step, answer.entries_done) == ([Step.TOUCH, Step.MARK, Step.OVERWRITE][at - 1], 0)
    assert layer.kinds == at
    assert answer.costs.fsyncs == at - 1
    assert layer.seen[-1][0] == "write"
    assert is_legal((directory / FIRST).read_bytes(), before, file)


def test_read_that_fails_is_an_error_of_the_disk(work: Work) -> None:
    answer = overwrite(work[2], Failing(kind="read", at=1))
    assert answer.refusal is not None
    assert (answer.refusal.code, answer.step) == (RefusalCode.DISK_ERROR, Step.CHECK)


@pytest.mark.parametrize("mode", [Mode.CLOSED, Mode.LIVE])
def test_stop_before_any_write_lets_not_one_byte_more_be_written(work: Work, mode: Mode) -> None:
    directory, file, _ = work
    call = next(rounds_of(directory, file, mode=mode, rows=300 if mode == Mode.CLOSED else 5))
    original = (directory / FIRST).read_bytes()
    stopped = []
    for at in range(100):
        (directory / FIRST).write_bytes(original)
        at_stop: list[bytes] = []

        def deed(held: list[bytes] = at_stop) -> None:
            raise_stop(directory)
            held.append((directory / FIRST).read_bytes())

        layer = Meddling(at=at, deed=deed)
        answer = overwrite(with_mtime(call, directory), layer)
        if answer.refusal is None:
            break
        assert (answer.refusal.code, layer.writes) == (RefusalCode.STOPPED, at)
        assert (directory / FIRST).read_bytes() == at_stop[0]
        assert is_legal(at_stop[0], original, file)
        stopped.append(answer.step)
    # Only behind the last write a stop comes too late.
    assert len(stopped) == layer.writes
    assert stopped[0] == Step.TOUCH
    assert {Step.MARK, Step.OVERWRITE} <= set(stopped)


def test_control_file_that_vanishes_stops_the_writer(work: Work) -> None:
    directory, _, call = work
    layer = Meddling(at=1, deed=(directory / "lethe.control").unlink)
    answer = overwrite(call, layer)
    assert answer.refusal is not None
    assert (answer.refusal.code, layer.writes) == (RefusalCode.STOPPED, 1)


def test_je_lck_is_free_again_after_each_call(work: Work) -> None:
    directory, _, call = work
    for each in (call, replace(call, epoch=3), replace(call, is_first=False)):
        overwrite(each)
        descriptor = os.open(directory / "je.lck", os.O_RDWR)
        for byte in (0, 1):
            fcntl.fcntl(
                descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
            )
        os.close(descriptor)
