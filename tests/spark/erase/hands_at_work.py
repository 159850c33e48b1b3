"""A whole erasure by calls, as a cycle makes them; layers that trace, fail, end a writer, or tear a write."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spark.erase.calls.calls import (
    Mode,
    PlanAnswer,
    PlanCall,
    PlannedFile,
    PrepareAnswer,
    PrepareCall,
    ProveAnswer,
    ProveCall,
    RoundAnswer,
    RoundCall,
    Step,
)
from spark.erase.calls.request import PlanRequest
from spark.erase.entry_tables import unpack
from spark.erase.overwrite.file_layer import FileLayer
from spark.erase.overwrite.overwrite import overwrite as do_round
from spark.erase.overwrite.rounds import slice_entries, split_rounds
from spark.erase.reading.directory import Witness
from spark.erase.unit import do
from spark.targets.files.control_file import ControlFile
from spark.targets.files.control_record import ProtectedRange

EPOCH = 7


def claim(directory: Path, epoch: int = EPOCH) -> None:
    """Make the control file of an environment, as a cycle's claim does."""
    with ControlFile.open(directory, create=True) as control:
        assert control.change(lambda record: record.claimed(epoch)) is not None


def protect(directory: Path, *ranges: ProtectedRange) -> None:
    with ControlFile.open(directory, create=False) as control:
        assert control.change(lambda record: record.protecting(*ranges)) is not None


def raise_stop(directory: Path) -> None:
    with ControlFile.open(directory, create=False) as control:
        assert control.change(lambda record: replace(record, stop=record.stop + 1)) is not None


def plan(directory: Path) -> PlanAnswer:
    answer = do(PlanCall(str(directory), PlanRequest()))
    assert isinstance(answer, PlanAnswer)
    assert answer.refusal is None
    return answer


def prepare(directory: Path, file: PlannedFile, *, was_written: bool = False) -> PrepareAnswer:
    answer = do(PrepareCall(str(directory), file.number, file.identity, file.entries, was_written))
    assert isinstance(answer, PrepareAnswer)
    return answer


def rounds_of(
    directory: Path,
    file: PlannedFile,
    *,
    mode: Mode = Mode.CLOSED,
    rows: int | None = None,
    witness: Witness | None = None,
) -> Iterator[RoundCall]:
    """The calls of all rounds of a file; of `rows` entries each, where a small file shall have several."""
    cuts = [(each.first, each.last) for each in split_rounds(file.entries, file_size=file.identity.size)]
    if rows is not None:
        cuts = [(at, min(at + rows, file.entry_count)) for at in range(0, file.entry_count, rows)]
    for number, (first, last) in enumerate(cuts):
        entries = slice_entries(file.entries, first, last)
        identity, is_first = file.identity, number == 0
        yield RoundCall(str(directory), file.number, mode, EPOCH, identity, entries, is_first, witness)


def overwrite(
    call: RoundCall, layer: FileLayer | None = None, clock: Callable[[], float] | None = None
) -> RoundAnswer:
    return do_round(call, layer=layer or FileLayer(), clock=clock or (lambda: 0.0))


def prove(directory: Path, file: PlannedFile, expected: str, layer: FileLayer | None = None) -> ProveAnswer:
    call = ProveCall(str(directory), file.number, file.identity, file.entries, expected)
    answer = do(call, layer=layer or FileLayer())
    assert isinstance(answer, ProveAnswer)
    return answer


def erase(directory: Path, *, mode: Mode = Mode.CLOSED, rows: int | None = None) -> PlanAnswer:
    """Plan, and erase and prove every file."""
    answer = plan(directory)
    for file in answer.files:
        if file.entry_count:
            erase_file(directory, file, mode=mode, rows=rows)
    return answer


def erase_file(
    directory: Path, file: PlannedFile, *, mode: Mode = Mode.CLOSED, rows: int | None = None
) -> None:
    before = prepare(directory, file)
    assert before.refusal is None
    for call in rounds_of(directory, file, mode=mode, rows=rows):
        done = overwrite(call)
        assert (done.refusal, done.step) == (None, Step.DONE)
    proved = prove(directory, file, before.sha256_expected)
    assert (proved.refusal, proved.is_proved) == (None, True)
    assert proved.entries_erased == file.entry_count


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.jdb"))}


def planned_bytes(file: PlannedFile) -> Iterator[tuple[int, int, int]]:
    """(type byte, begin of the item, end of the item) of all planned entries, by plain arithmetic."""
    for row in rows_of(file):
        item = row["offset"] + (22 if row["flags"] & 0x28 else 14)
        yield row["offset"] + 4, item, item + row["item_bytes"]


def rows_of(file: PlannedFile) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = unpack(file.entries).to_pylist()
    return rows


def erased_by_hand(data: bytes, file: PlannedFile) -> bytes:
    """What a file should be once its planned entries are erased."""
    changed = bytearray(data)
    for kind, begin, end in planned_bytes(file):
        changed[kind] = 43
        changed[begin:end] = bytes(end - begin)
    return bytes(changed)


class Killed(BaseException):
    """The writer ends here."""


@dataclass
class Traced(FileLayer):
    """Writes down each call that changes or syncs something: (what, descriptor, offset, bytes)."""

    seen: list[tuple[str, int, int, bytes]] = field(default_factory=list)
    calls: int = 0
    paths: dict[int, str] = field(default_factory=dict)

    def step(self) -> None:
        self.calls += 1

    def open(self, path: Path, flags: int) -> int:
        self.step()
        descriptor = super().open(path, flags)
        self.paths[descriptor] = path.name
        return descriptor

    def stat(self, path: Path) -> os.stat_result:
        self.step()
        return super().stat(path)

    def fstat(self, descriptor: int) -> os.stat_result:
        self.step()
        return super().fstat(descriptor)

    def pread(self, descriptor: int, target: memoryview, offset: int) -> int:
        self.step()
        return super().pread(descriptor, target, offset)

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        self.step()
        self.seen.append(("write", descriptor, offset, bytes(data)))
        return super().pwrite(descriptor, data, offset)

    def fsync(self, descriptor: int) -> None:
        self.step()
        self.seen.append(("fsync", descriptor, 0, b""))
        super().fsync(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        self.step()
        self.seen.append(("rename", 0, 0, new.name.encode()))
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self.step()
        self.seen.append(("unlink", 0, 0, path.name.encode()))
        super().unlink(path)


@dataclass
class Ending(Traced):
    """Ends the writer before call `at`; with `torn` after so many blocks of it, if it is a write."""

    at: int = 0
    torn: int | None = None
    blocks: int = 1

    def step(self) -> None:
        super().step()
        if self.calls == self.at and self.torn is None:
            raise Killed

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        if self.calls + 1 == self.at and self.torn is not None:
            end = (offset // self.torn + self.blocks) * self.torn - offset
            os.pwrite(descriptor, data[:end], offset)
            raise Killed
        return super().pwrite(descriptor, data, offset)


@dataclass
class Failing(Traced):
    """Lets the n-th call of a kind fail with an errno, and does nothing of it."""

    kind: str = "write"
    at: int = 0
    errno: int = 5
    kinds: int = 0

    def fail(self, kind: str) -> None:
        if kind == self.kind:
            self.kinds += 1
            if self.kinds == self.at:
                raise OSError(self.errno, os.strerror(self.errno))

    def pread(self, descriptor: int, target: memoryview, offset: int) -> int:
        self.fail("read")
        return super().pread(descriptor, target, offset)

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        self.fail("write")
        return super().pwrite(descriptor, data, offset)

    def fsync(self, descriptor: int) -> None:
        self.fail("fsync")
        super().fsync(descriptor)


@dataclass
class Meddling(Traced):
    """Does something right after the n-th write; 0: once the file is open."""

    at: int = 0
    deed: Callable[[], None] = lambda: None
    writes: int = 0

    def open(self, path: Path, flags: int) -> int:
        descriptor = super().open(path, flags)
        if self.at == 0:
            self.deed()
        return descriptor

    def pwrite(self, descriptor: int, data: memoryview, offset: int) -> int:
        self.writes += 1
        done = super().pwrite(descriptor, data, offset)
        if self.writes == self.at:
            self.deed()
        return done


def split_at_syncs(layer: Traced) -> list[list[tuple[int, bytes]]]:
    """The writes up to each sync; the last call is a sync."""
    steps: list[list[tuple[int, bytes]]] = [[]]
    for what, _, offset, data in layer.seen:
        if what == "write":
            steps[-1].append((offset, data))
        else:
            assert what == "fsync"
            assert steps[-1]
            steps.append([])
    assert steps.pop() == []
    return steps


def put(data: bytes | bytearray, writes: list[tuple[int, bytes]]) -> bytes:
    changed = bytearray(data)
    for offset, piece in writes:
        changed[offset : offset + len(piece)] = piece
    assert len(changed) == len(data)
    return bytes(changed)
