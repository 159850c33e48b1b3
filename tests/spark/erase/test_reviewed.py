"""What of a file's plan was reviewed: entries by place and checksum, amounts, extinctions, slots in use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from spark.erase.calls.calls import PlannedFile
from spark.erase.entry_tables import pack, unpack
from spark.erase.native.planned import PLANNED
from spark.erase.reading.directory import Identity
from spark.erase.reasons import Reason
from spark.erase.reviewed import ReviewedFile, keys_of, within
from spark.formats.je.log import EntryType

IDENTITY = Identity(device=1, inode=2, size=10_000, links=1, mtime_ns=3)
SUPERSEDED, EXTINCT = int(Reason.SUPERSEDED), int(Reason.EXTINCT)


def _entries(*rows: tuple[int, int, int]) -> bytes:
    """(offset, reason, checksum), each of 100 bytes."""
    count = len(rows)
    offsets, reasons, checksums = zip(*rows, strict=True) if rows else ((), (), ())
    fixed = {"type": int(EntryType.INS_LN), "flags": 0, "previous": 0, "item_bytes": 100, "vlsn": 0}
    columns = {"offset": offsets, "reason": reasons, "checksum": checksums}
    columns |= {name: [value] * count for name, value in fixed.items()}
    return pack(pa.table({name: pa.array(columns[name], PLANNED.field(name).type) for name in PLANNED.names}))


def _file(*rows: tuple[int, int, int], extinct: tuple[str, ...] = ()) -> PlannedFile:
    counts = {reason: sum(row[1] == reason for row in rows) for reason in (SUPERSEDED, EXTINCT)}
    return PlannedFile(
        number=4,
        identity=IDENTITY,
        created_ms=0,
        causes={},
        entries=_entries(*rows),
        entry_count=len(rows),
        erased={Reason(reason).name: (count, count * 100) for reason, count in counts.items() if count},
        kept={"VETOED": (1, 50)},
        reserved=False,
        barren=False,
        extinct=dict.fromkeys(extinct, (counts[EXTINCT], counts[EXTINCT] * 100)),
        in_use=np.array([row[0] for row in rows if row[1] == EXTINCT], "<u4").tobytes(),
    )


def _seen(*rows: tuple[int, int, int], **fields: int) -> ReviewedFile:
    return replace(ReviewedFile(1, 2, 10_000, keys_of(_entries(*rows))), **fields)  # type: ignore[arg-type]


ROWS = ((100, SUPERSEDED, 7), (300, EXTINCT, 8), (500, EXTINCT, 9))


def test_what_was_reviewed_whole_stays_as_it_is() -> None:
    file = _file(*ROWS, extinct=("ext_a",))
    assert within(file, _seen(*ROWS, (700, SUPERSEDED, 1))) == file


def test_what_was_not_is_kept_and_counted() -> None:
    found = within(_file(*ROWS, extinct=("ext_a",)), _seen(ROWS[0], ROWS[1], (500, EXTINCT, 1)))
    assert unpack(found.entries)["offset"].to_pylist() == [100, 300]
    assert (found.entry_count, found.causes) == (2, {})
    assert found.erased == {"SUPERSEDED": (1, 100), "EXTINCT": (1, 100)}
    assert found.kept == {"VETOED": (1, 50), "NOT_REVIEWED": (1, 100)}
    assert found.extinct == {"ext_a": (1, 100)}
    assert np.frombuffer(found.in_use, "<u4").tolist() == [300]


def test_where_several_extinctions_share_what_is_cut_none_of_it_goes() -> None:
    found = within(_file(*ROWS, extinct=("ext_a", "ext_b")), _seen(*ROWS[:2]))
    assert unpack(found.entries)["offset"].to_pylist() == [100]
    assert (found.extinct, found.in_use, found.kept["NOT_REVIEWED"]) == ({}, b"", (2, 200))


@pytest.mark.parametrize("seen", [None, _seen(*ROWS, inode=3), _seen(*ROWS, size=9), _seen(*ROWS, device=2)])
def test_another_file_was_not_reviewed(seen: ReviewedFile | None) -> None:
    found = within(replace(_file(*ROWS), reserved=True, barren=True), seen)
    assert (found.entry_count, found.erased, list(found.causes)) == (0, {}, ["NOT_REVIEWED"])
    assert (found.reserved, found.barren) == (True, False)
    assert within(_file(), seen).causes == {}


def test_a_file_goes_as_a_whole_only_where_that_was_reviewed() -> None:
    file = replace(_file(*ROWS), reserved=True, barren=True)
    assert within(file, _seen(*ROWS, deletes=True)).barren
    assert not within(file, _seen(*ROWS)).barren
