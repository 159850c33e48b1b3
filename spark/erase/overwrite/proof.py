"""The proof of a file that was overwritten: read again from the medium, every byte of it.

The hash says that each byte outside of the planned entries is what it was, and each inside what it should
be; the entries are looked at one by one nevertheless, and the chain is walked, since a hash that was computed
wrongly would prove whatever was done wrongly.
"""

import hashlib
import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from spark.erase.calls.calls import ProveAnswer, ProveCall, Refusal, RefusalCode
from spark.erase.calls.refusing import Refused
from spark.erase.entry_tables import Coming
from spark.erase.errors import LogRefused
from spark.erase.native import erasing, planned
from spark.erase.native.types import Buffer
from spark.erase.overwrite.file_layer import READ_FLAGS, Clock, FileLayer, OpenFile, Tally
from spark.erase.overwrite.planned_file import check_identity, opened_as_planned
from spark.erase.reading.files import UNIT_BYTES, Room, check_chain
from spark.formats.je.log import file_name

# Where reading begins and goes on must be a multiple of the medium's block.
ALIGNMENT_BYTES: Final = 4096
WAYS: Final = (("O_DIRECT", os.O_DIRECT), ("DROPPED_PAGES", 0))


class Digest(Protocol):
    """A hash at work."""

    def update(self, data: memoryview, /) -> None: ...
    def hexdigest(self) -> str: ...


def prove(call: ProveCall, *, layer: FileLayer, clock: Clock) -> ProveAnswer:
    """Read a finished file from the medium, past what memory holds of it, and compare.

    Where the medium refuses O_DIRECT, the file is synced, its pages are dropped, and it is read as usual.
    """
    tally = Tally(clock)
    for read_by, flag in WAYS:
        try:
            return _prove(call, layer, tally, read_by=read_by, flag=flag)
        except Refused as refused:
            if flag and refused.refusal.ref == "EINVAL":
                continue
            return ProveAnswer(read_by=read_by, costs=tally.costs(), refusal=refused.refusal)
    raise AssertionError("the last way answers")


def _prove(call: ProveCall, layer: FileLayer, tally: Tally, *, read_by: str, flag: int) -> ProveAnswer:
    with opened_as_planned(
        layer,
        tally,
        Path(call.directory),
        call.number,
        identity=call.identity,
        flags=READ_FLAGS | flag,
        with_links=False,
        with_mtime=False,
    ) as file:
        if not flag:
            file.fsync()
            file.drop_pages()
        again = _Again(file, Coming(call.entries, file_size=call.identity.size), call.identity.size)
        broken = _walk(again)
        after = file.status()
        check_identity(after, call.identity, name=file.name, with_links=False, with_mtime=False)
    found = "" if broken else again.digest.hexdigest()
    refusal = broken or _find_fault(call, again, found)
    return ProveAnswer(
        is_proved=refusal is None,
        sha256_now=found,
        read_by=read_by,
        entries_erased=again.coming.done,
        size=after.st_size,
        mtime_ns=after.st_mtime_ns,
        costs=tally.costs(),
        refusal=refusal,
    )


@dataclass(slots=True)
class _Again:
    """A file that is read once more, from its beginning to its end; what comes by is hashed and looked at.

    Attributes:
        coming: those of its planned entries that are done are erased.
        wrong: the offset of the first one that is not.
    """

    file: OpenFile
    coming: Coming
    size: int
    digest: Digest = field(default_factory=hashlib.sha256)
    wrong: int | None = None
    _unit: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, UNIT_BYTES))
    _base: int = 0
    _filled: int = 0

    @property
    def name(self) -> str:
        """The file's name."""
        return self.file.name

    def read_into(self, target: memoryview, offset: int) -> int:
        """Fill a buffer with what follows; to be asked in order, without a gap."""
        assert self._base <= offset <= self._base + self._filled
        done = 0
        while done < len(target) and offset + done < self.size:
            at = offset + done - self._base
            if at == self._filled:
                self._read_unit()
                at = 0
            count = min(len(target) - done, self._filled - at)
            with memoryview(self._unit) as unit:
                target[done : done + count] = unit[at : at + count]
            done += count
        return done

    def _read_unit(self) -> None:
        """Read the next unit; both its place in the file and the buffer are aligned."""
        base = self._base + self._filled
        wanted = min(UNIT_BYTES, self.size - base)
        filled = 0
        with memoryview(self._unit) as unit:
            while filled < wanted:
                count = self.file.read_once(unit[filled:], base + filled)
                if count < min(ALIGNMENT_BYTES, wanted - filled):
                    detail = f"the file ends at {base + filled + count}"
                    raise Refused(RefusalCode.FILE_RESIZED, detail, file=self.name, offset=base + filled)
                filled += count
                if filled < wanted:
                    filled -= filled % ALIGNMENT_BYTES
            filled = wanted
            self.digest.update(unit[:filled])
        self._base, self._filled = base, filled
        if self.wrong is None:
            window: Buffer = np.frombuffer(self._unit, dtype=np.uint8)
            rows = self.coming.before(base + filled)
            behind, wrong = erasing.find_unerased(window, base, filled, rows, 0)
            if wrong != erasing.NOTHING:
                self.wrong = int(rows[wrong, planned.OFFSET])
            self.coming.drop(int(behind))


def _walk(again: _Again) -> Refusal | None:
    """Walk the chain of entries over what is read; where it breaks, the hash is that of a part."""
    try:
        check_chain(again, size=again.size, room=Room.make())
    except LogRefused as refused:
        detail = f"{refused.code}: {refused.detail}"
        where = (refused.file, refused.offset)
        return Refusal(RefusalCode.UNPROVEN, detail, refused.code, *where)
    return None


def _find_fault(call: ProveCall, again: _Again, found: str) -> Refusal | None:
    name = file_name(call.number)
    if again.wrong is not None:
        return Refusal(RefusalCode.UNPROVEN, "a planned entry is not erased", file=name, offset=again.wrong)
    if found != call.sha256_expected:
        detail = f"SHA-256 {found}, not {call.sha256_expected}, as it should be once its entries are erased"
        return Refusal(RefusalCode.UNPROVEN, detail, file=name)
    assert not len(again.coming.before(again.size)), "every planned entry lies within the file"
    return None
