"""One round: overwrite some entries of one file, in an order that every crash leaves legal.

Invariants:
- nothing is written without the environment's lock (CLOSED), the exclusive lock of the file's byte, and a
  lock on the file itself;
- nothing is written unless the control file, read under that lock, has our epoch and no range that covers the
  file, nor after its stop counter has changed: it is compared before every write;
- nothing is written to a log that lacks the checkpoint by which its entries are obsolete;
- the order is touch, fsync (first round of a file only), types, fsync, items, fsync. An entry of type 43 with
  its item is legal; an item of zeros under another type is not, and never comes to be;
- a failed fsync ends the round as UNPROVEN; nothing is tried twice, nobody waits, nobody knows the time.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from spark.erase.calls.calls import Mode, RefusalCode, RoundAnswer, RoundCall, Step
from spark.erase.calls.refusing import Refused
from spark.erase.entry_tables import EntryRows, rows_of
from spark.erase.native import erasing
from spark.erase.native.types import Buffer
from spark.erase.overwrite.blocks import (
    PIECE_BYTES_MAX,
    blocks_around,
    pieces_with_items,
    pieces_with_types,
)
from spark.erase.overwrite.file_layer import WRITE_FLAGS, Clock, FileLayer, OpenFile, Tally
from spark.erase.overwrite.locking import Claim, claimed_file, lock_written
from spark.erase.overwrite.planned_file import opened_as_planned
from spark.erase.overwrite.rounds import ROUND_BYTES_MAX, ROUND_ENTRIES_MAX
from spark.erase.overwrite.witness import check_witness, newer_witness
from spark.erase.reading.directory import Witness
from spark.erase.reading.files import UNIT_BYTES
from spark.formats.je import log as je_log

ERASED_TYPE: Final = memoryview(bytes([je_log.EntryType.ERASED]))
ZEROS: Final = memoryview(bytes(PIECE_BYTES_MAX))


@dataclass(slots=True)
class _Round:
    """A round at work: what it holds, the step it is in, and what it has cost."""

    call: RoundCall
    planned: EntryRows
    tally: Tally
    step: Step = Step.LOCK
    witness: Witness | None = None


def overwrite(call: RoundCall, *, layer: FileLayer, clock: Clock) -> RoundAnswer:
    """Do one round.

    Source: design.md, "Round" and "Who may touch a file"; facts eraser-behaviour, 5.
    """
    work = _Round(call, rows_of(call.entries, file_size=call.identity.size), Tally(clock))
    assert 0 < work.planned.count <= ROUND_ENTRIES_MAX, work.planned.count
    assert work.planned.count == 1 or _span_bytes(work.planned) <= ROUND_BYTES_MAX
    directory = Path(call.directory)
    try:
        with claimed_file(directory, call.number, epoch=call.epoch, mode=call.mode) as claim:
            work.step = Step.CHECK
            if call.witness is not None:
                if call.mode == Mode.LIVE:
                    work.witness = newer_witness(directory, call.witness)
                check_witness(layer, directory, call.witness)
            with opened_as_planned(
                layer,
                work.tally,
                directory,
                call.number,
                identity=call.identity,
                flags=WRITE_FLAGS,
                with_mtime=call.is_first,
            ) as file:
                lock_written(claim, directory, file)
                _work_on(work, claim, file)
    except Refused as refused:
        return RoundAnswer(work.step, 0, work.tally.costs(), refused.refusal)
    return RoundAnswer(work.step, work.planned.count, work.tally.costs(), witness=work.witness)


def _work_on(work: _Round, claim: Claim, file: OpenFile) -> None:
    """Check, touch, mark, overwrite. The three steps write in pieces; each piece asks the claim first."""
    window = _read_window(work, file)
    if work.call.is_first:
        work.step = Step.TOUCH
        _touch(claim, file)
    work.step = Step.MARK
    _write(claim, file, window.marked())
    file.fsync()
    work.step = Step.OVERWRITE
    _write(claim, file, window.zeroed())
    file.fsync()
    work.step = Step.DONE


def _span_bytes(planned: EntryRows) -> int:
    return int(planned.ends[-1] - planned.offsets[0])


def _write(claim: Claim, file: OpenFile, pieces: Iterable[tuple[int, memoryview]]) -> None:
    for offset, data in pieces:
        claim.check_stop()
        file.write(data, offset)


def _touch(claim: Claim, file: OpenFile) -> None:
    """Write the first byte as it is: the new mtime is durable before anything else changes."""
    first = memoryview(bytearray(1))
    file.read_whole(first, 0)
    _write(claim, file, [(0, first)])
    file.fsync()


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The blocks that hold a round's entries, in memory: changed here, written back piece by piece."""

    planned: EntryRows
    buffer: Buffer
    base: int
    file_size: int

    def marked(self) -> Iterator[tuple[int, memoryview]]:
        """Set the types, and return what is to be written."""
        erasing.mark_types(self.buffer, self.base, len(self.buffer), self.planned.rows, 0)
        return self._cut(pieces_with_types(self.planned, file_size=self.file_size))

    def zeroed(self) -> Iterator[tuple[int, memoryview]]:
        """Set the items to zero, and return what is to be written; to be called after `marked`."""
        erasing.zero_items(self.buffer, self.base, len(self.buffer), self.planned.rows, 0)
        return self._cut(pieces_with_items(self.planned, file_size=self.file_size))

    def _cut(self, pieces: Iterable[tuple[int, int]]) -> Iterator[tuple[int, memoryview]]:
        for begin, end in pieces:
            yield begin, memoryview(self.buffer.data)[begin - self.base : end - self.base]


@dataclass(frozen=True, slots=True)
class _PlannedBytes:
    """Nothing but the planned bytes: beside a running JE, and for an entry too large for memory."""

    planned: EntryRows

    def marked(self) -> Iterator[tuple[int, memoryview]]:
        """Return the type bytes, one by one."""
        for offset in self.planned.offsets.tolist():
            yield offset + je_log.TYPE_AT, ERASED_TYPE

    def zeroed(self) -> Iterator[tuple[int, memoryview]]:
        """Return the items; no two of them touch, since a header stands between."""
        for begin, end in zip(self.planned.items_at.tolist(), self.planned.ends.tolist(), strict=True):
            for at in range(begin, end, PIECE_BYTES_MAX):
                yield at, ZEROS[: min(PIECE_BYTES_MAX, end - at)]


def _read_window(work: _Round, file: OpenFile) -> _Blocks | _PlannedBytes:
    """Read the round's part of the file, and compare the header of every entry with the plan.

    Raises: Refused: HEADER_CHANGED.
    """
    planned, size = work.planned, work.call.identity.size
    is_large = _span_bytes(planned) > ROUND_BYTES_MAX
    end = int(planned.items_at[-1] if is_large else planned.ends[-1])
    low, high = blocks_around(int(planned.offsets[0]), end, file_size=size)
    buffer: Buffer = np.empty(high - low, dtype=np.uint8)
    for at in range(0, len(buffer), UNIT_BYTES):
        file.read_whole(memoryview(buffer.data)[at : at + UNIT_BYTES], low + at)
    row = int(erasing.compare(buffer, low, len(buffer), planned.rows, 0))
    if row != erasing.NOTHING:
        detail = "the header of the entry is another than planned"
        offset = int(planned.offsets[row])
        raise Refused(RefusalCode.HEADER_CHANGED, detail, file=file.name, offset=offset)
    if is_large or work.call.mode == Mode.LIVE:
        return _PlannedBytes(planned)
    return _Blocks(planned, buffer, low, size)
