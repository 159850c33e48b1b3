"""What a file is before its first write, and what it will be: two hashes from one reading."""

import hashlib
from pathlib import Path

import numpy as np

from spark.erase.calls.calls import PrepareAnswer, PrepareCall, RefusalCode
from spark.erase.calls.refusing import Refused
from spark.erase.entry_tables import Coming
from spark.erase.native import erasing, planned
from spark.erase.native.types import Buffer, Table
from spark.erase.overwrite.file_layer import READ_FLAGS, Clock, FileLayer, OpenFile, Tally
from spark.erase.overwrite.planned_file import check_identity, opened_as_planned
from spark.erase.reading.directory import Identity
from spark.erase.reading.files import UNIT_BYTES


def prepare(
    call: PrepareCall, *, layer: FileLayer, clock: Clock, unit_bytes: int = UNIT_BYTES
) -> PrepareAnswer:
    """Hash a file as it is, and as it will be once its planned entries are erased.

    The header of each planned entry is compared on the way; its type may be 43 already. Nothing is locked:
    a round compares again under its locks.
    """
    coming = Coming(call.entries, file_size=call.identity.size)
    tally = Tally(clock)
    try:
        with opened_as_planned(
            layer,
            tally,
            Path(call.directory),
            call.number,
            identity=call.identity,
            flags=READ_FLAGS,
            with_mtime=not call.was_written,
        ) as file:
            before = file.status().st_mtime_ns
            now, expected = _hash(file, coming, call.identity, unit_bytes)
            after = file.status()
            check_identity(after, call.identity, name=file.name, with_mtime=not call.was_written)
            if after.st_mtime_ns != before:
                detail = "it was written to while it was read"
                raise Refused(RefusalCode.FILE_TOUCHED, detail, file=file.name)
    except Refused as refused:
        return PrepareAnswer(costs=tally.costs(), refusal=refused.refusal)
    return PrepareAnswer(now, expected, after.st_mtime_ns, tally.costs())


def _hash(file: OpenFile, coming: Coming, identity: Identity, unit_bytes: int) -> tuple[str, str]:
    now = hashlib.sha256()
    # Up to the first entry that changes, both are the same.
    expected = None
    buffer: Buffer = np.empty(unit_bytes, dtype=np.uint8)
    for base in range(0, identity.size, unit_bytes):
        filled = min(unit_bytes, identity.size - base)
        window = memoryview(buffer.data)[:filled]
        file.read_whole(window, base)
        rows = coming.before(base + filled)
        if expected is None and len(rows) and rows[0, planned.OFFSET] < base + filled:
            expected = now.copy()
        now.update(window)
        if expected is not None:
            coming.drop(_erase(file, buffer, base, filled, rows))
            expected.update(window)
    return now.hexdigest(), (expected or now).hexdigest()


def _erase(file: OpenFile, buffer: Buffer, base: int, filled: int, rows: Table) -> int:
    """Erase in memory what of the entries lies in the window; return the first row that ends behind it."""
    wrong = int(erasing.compare(buffer, base, filled, rows, 0))
    if wrong != erasing.NOTHING:
        detail = "the header of the entry is another than planned"
        offset = int(rows[wrong, planned.OFFSET])
        raise Refused(RefusalCode.HEADER_CHANGED, detail, file=file.name, offset=offset)
    erasing.mark_types(buffer, base, filled, rows, 0)
    return int(erasing.zero_items(buffer, base, filled, rows, 0))
