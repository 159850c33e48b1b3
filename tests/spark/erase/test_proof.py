"""The two hashes before the first write, and the proof after the last one."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spark.erase.calls.calls import PlannedFile, PrepareCall, RefusalCode
from spark.erase.entry_tables import rows_of, slice_entries
from spark.erase.overwrite.file_layer import FileLayer
from spark.erase.overwrite.prepare import prepare as prepare_in_units
from spark.erase.reading.directory import Identity
from tests.spark.erase.hands_at_work import (
    Failing,
    Traced,
    claim,
    erased_by_hand,
    overwrite,
    plan,
    planned_bytes,
    prepare,
    prove,
    rounds_of,
)

FIRST = "00000000.jdb"

Erased = tuple[Path, PlannedFile, str]


@pytest.fixture
def erased(copy_of: Callable[[str], Path]) -> Erased:
    """An environment whose first file was overwritten, and the hash that was expected of it."""
    directory = copy_of("closed")
    claim(directory)
    file = plan(directory).files[0]
    expected = prepare(directory, file).sha256_expected
    for call in rounds_of(directory, file):
        assert overwrite(call).refusal is None
    return directory, file, expected


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("unit_bytes", [4 << 20, 1 << 16, 4096, 97, 5])
def test_hashes_are_of_the_file_now_and_of_the_file_erased(
    copy_of: Callable[[str], Path], unit_bytes: int
) -> None:
    # Entries and their headers cross the bounds of small units everywhere.
    directory = copy_of("halted" if unit_bytes > 4096 else "closed")
    file = next(file for file in plan(directory).files if file.entry_count)
    path = directory / f"{file.number:08x}.jdb"
    if unit_bytes < 4096:
        file = cut_off(path, file, 60_000)
    data = path.read_bytes()
    call = PrepareCall(str(directory), file.number, file.identity, file.entries)
    answer = prepare_in_units(call, layer=FileLayer(), clock=lambda: 0.0, unit_bytes=unit_bytes)
    assert answer.refusal is None
    assert answer.sha256_now == sha256(data)
    assert answer.sha256_expected == sha256(erased_by_hand(data, file))
    assert answer.mtime_ns == path.stat().st_mtime_ns
    assert answer.costs.read_bytes == len(data)


def cut_off(path: Path, file: PlannedFile, size: int) -> PlannedFile:
    """The beginning of a file, with what is planned there; each read of five bytes takes its time."""

    ends = rows_of(file.entries, file_size=file.identity.size).ends
    count = int((ends <= size).sum())
    os.truncate(path, size)
    status = path.stat()
    identity = replace(file.identity, size=size, mtime_ns=status.st_mtime_ns)
    return replace(file, identity=identity, entries=slice_entries(file.entries, 0, count))


def test_expected_hash_is_the_same_before_between_and_after_rounds(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    claim(directory)
    file = plan(directory).files[0]
    before = prepare(directory, file)
    for call in rounds_of(directory, file, rows=1_000):
        assert overwrite(call).refusal is None
        between = prepare(directory, file, was_written=True)
        assert between.sha256_expected == before.sha256_expected
        assert between.sha256_now != before.sha256_now
    assert between.sha256_now == before.sha256_expected


def test_file_that_is_written_to_while_it_is_hashed_is_refused(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    file = plan(directory).files[0]

    class Touching(FileLayer):
        def pread(self, descriptor: int, target: memoryview, offset: int) -> int:
            os.utime(directory / FIRST)
            return super().pread(descriptor, target, offset)

    for was_written in (False, True):
        call = PrepareCall(str(directory), 0, current(directory, file), file.entries, was_written)
        answer = prepare_in_units(call, layer=Touching(), clock=lambda: 0.0)
        assert answer.refusal is not None
        assert (answer.refusal.code, answer.sha256_now) == (RefusalCode.FILE_TOUCHED, "")


def current(directory: Path, file: PlannedFile) -> Identity:
    return replace(file.identity, mtime_ns=(directory / FIRST).stat().st_mtime_ns)


def test_erased_file_is_proved_past_the_memory_of_the_machine(erased: Erased) -> None:
    directory, file, expected = erased
    answer = prove(directory, file, expected)
    assert (answer.refusal, answer.is_proved) == (None, True)
    assert answer.sha256_now == expected == sha256((directory / FIRST).read_bytes())
    assert answer.entries_erased == file.entry_count
    status = (directory / FIRST).stat()
    assert (answer.size, answer.mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert answer.costs.read_bytes == file.identity.size
    assert answer.read_by in ("O_DIRECT", "DROPPED_PAGES")


def test_medium_without_direct_reads_is_synced_and_its_pages_dropped(erased: Erased) -> None:
    directory, file, expected = erased

    class Plain(Traced):
        dropped = 0

        def open(self, path: Path, flags: int) -> int:
            if flags & os.O_DIRECT:
                raise OSError(22, os.strerror(22))
            return super().open(path, flags)

        def drop_pages(self, descriptor: int) -> None:
            assert self.seen[-1][0] == "fsync"
            self.dropped += 1
            super().drop_pages(descriptor)

    layer = Plain()
    answer = prove(directory, file, expected, layer)
    assert (answer.is_proved, answer.read_by, layer.dropped) == (True, "DROPPED_PAGES", 1)
    assert answer.costs.fsyncs == 1


def test_medium_that_refuses_the_first_direct_read_is_read_as_usual(erased: Erased) -> None:
    directory, file, expected = erased
    answer = prove(directory, file, expected, Failing(kind="read", at=1, errno=22))
    assert (answer.is_proved, answer.read_by) == (True, "DROPPED_PAGES")


def test_proof_whose_sync_fails_is_none(erased: Erased) -> None:
    directory, file, expected = erased

    class Plain(Failing):
        def open(self, path: Path, flags: int) -> int:
            if flags & os.O_DIRECT:
                raise OSError(22, os.strerror(22))
            return super().open(path, flags)

    answer = prove(directory, file, expected, Plain(kind="fsync", at=1))
    assert answer.refusal is not None
    assert (answer.is_proved, answer.refusal.code) == (False, RefusalCode.UNPROVEN)


def test_read_that_fails_proves_nothing(erased: Erased) -> None:
    directory, file, expected = erased
    answer = prove(directory, file, expected, Failing(kind="read", at=1))
    assert answer.refusal is not None
    assert (answer.is_proved, answer.refusal.code) == (False, RefusalCode.DISK_ERROR)
    assert answer.refusal.ref == "EIO"


def test_any_byte_that_is_another_leaves_the_file_unproven(erased: Erased) -> None:
    directory, file, expected = erased
    path = directory / FIRST
    whole = path.read_bytes()
    places = list(planned_bytes(file))
    kind, begin, end = places[700]
    for at, offset in (
        (begin, kind - 4),  # of an item
        (end - 1, kind - 4),
        (kind, kind - 4),  # a type
        (kind + 6, kind - 4),  # a size
        (places[0][0] - 20, None),  # outside of what was planned
        (len(whole) - 1, None),
    ):
        changed = bytearray(whole)
        changed[at] ^= 1
        path.write_bytes(changed)
        answer = prove(directory, file, expected)
        assert answer.refusal is not None
        assert (answer.is_proved, answer.refusal.code) == (False, RefusalCode.UNPROVEN)
        assert answer.refusal.file == FIRST
        if answer.refusal.ref == "" and offset is not None:
            assert answer.refusal.offset == offset
    path.write_bytes(whole)
    assert prove(directory, file, expected).is_proved


def test_file_that_was_not_erased_is_unproven(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    file = plan(directory).files[0]
    answer = prove(directory, file, prepare(directory, file).sha256_expected)
    assert answer.refusal is not None
    assert (answer.is_proved, answer.refusal.code, answer.entries_erased) == (False, RefusalCode.UNPROVEN, 0)
    # Even a hash that fits proves no erasure.
    now = sha256((directory / FIRST).read_bytes())
    assert prove(directory, file, now).is_proved is False


def test_chain_that_is_broken_is_unproven_though_the_hash_fits(erased: Erased) -> None:
    directory, file, _ = erased
    path = directory / FIRST
    data = bytearray(path.read_bytes())
    data[len(data) - 400 :] = bytes(400)
    path.write_bytes(data)
    answer = prove(directory, file, sha256(bytes(data)))
    assert answer.refusal is not None
    assert (answer.is_proved, answer.refusal.code) == (False, RefusalCode.UNPROVEN)


def test_hard_link_after_the_erasure_does_not_hinder_the_proof(erased: Erased) -> None:
    directory, file, expected = erased
    os.link(directory / FIRST, directory / "snapshot")
    assert prove(directory, file, expected).is_proved
