"""The one window over all files: which LN has a newer version.

Rows are parted by the hash of database and key, so that each part fits into memory; their keys travel with
them and are compared byte by byte.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark.erase.errors import LogRefused
from spark.erase.native.types import Table
from spark.erase.plan.overview import find_outcomes_in_file, offsets_in
from spark.erase.plan.survey import FileTask, TransactionEnds, pack, pack_rising, thin, unpack
from spark.erase.reading.columns import FileColumns
from spark.erase.reading.files import Reads
from spark.erase.reading.log import Lns, Log, Mask, all_ends, all_entries, all_lns, distinct
from spark.erase.reading.transactions import Outcomes
from spark.erase.rule.deciding import USER_LN
from spark.erase.rule.versions import compare_later, compare_versions, find_candidates
from spark.formats.je.items import VLSN_RANGE_KEY

ROWS: Final = pa.schema(
    [
        ("hash_1", pa.int64()),
        ("hash_2", pa.int64()),
        ("db", pa.int64()),
        ("lsn", pa.int64()),
        ("reliable", pa.bool_()),
        ("key", pa.large_binary()),
    ]
)
# The low bits of a hash are worse than the middle ones.
HASH_SHIFT: Final = np.uint64(16)
IS_ROWS: Final = b"R"
IS_NOTES: Final = b"N"


@dataclass(frozen=True, slots=True)
class WindowTerms:
    """What every task of the window must know.

    Attributes:
        reserved_db, vlsn_db: databases of JE's own whose records are asked for.
        parts: so many parts of rows are made.
    """

    first_active: int
    spread: TransactionEnds
    reserved_db: int | None
    vlsn_db: int | None
    parts: int


@dataclass(frozen=True, slots=True)
class Notes:
    """What else the second look at a file has found.

    Attributes:
        columns: the file with the LNs of the two databases, and little else.
        outcomes: of these LNs.
        abort_lsns: what LNs at or behind A would return to.
    """

    columns: FileColumns
    outcomes: Outcomes
    abort_lsns: Table
    reads: tuple[int, int]


@dataclass(frozen=True, slots=True)
class WindowPart:
    """What one part of the window has found.

    Attributes:
        found: file -> packed offsets of its superseded LNs, of those with a newer version of the same hash
            and another key, and of those that are superseded only by versions not to be relied on yet.
        notes: of files; they come through whichever part.
    """

    found: dict[int, tuple[bytes, bytes, bytes]]
    notes: tuple[Notes | LogRefused, ...]


def part_of_file(task: FileTask, *, terms: WindowTerms) -> list[tuple[int, bytes]]:
    """Read a file again, and give its rows by part; a refusal is a value."""
    try:
        columns, reads = task.read(verify=False)
    except LogRefused as refused:
        return [(0, IS_NOTES + pack(refused))]
    log = Log(Path(task.directory), (), (columns,), Reads())
    entries, lns = all_entries(log), all_lns(log)
    outcomes = find_outcomes_in_file(entries, lns, all_ends(log), terms.spread)
    lsn = entries.lsn[lns.entry]
    user = USER_LN[entries.type[lns.entry]]
    rows, reliable = find_candidates(entries, lns, outcomes, user=user, first_active=terms.first_active)
    wanted = lns.db == (-1 if terms.reserved_db is None else terms.reserved_db)
    if terms.vlsn_db is not None:
        is_range = pc.equal(columns.lns["key"], pa.scalar(VLSN_RANGE_KEY, pa.large_binary()))
        wanted |= (lns.db == terms.vlsn_db) & is_range.to_numpy()
    notes = Notes(
        columns=thin(columns, lns=wanted),
        outcomes=Outcomes(*(getattr(outcomes, each.name)[wanted] for each in fields(Outcomes))),
        abort_lsns=distinct(lns.abort_lsn[lsn >= terms.first_active]),
        reads=(reads.count, reads.byte_count),
    )
    found = [(task.number % terms.parts, IS_NOTES + pack(notes))]
    found += _rows_by_part(columns, lns, rows, lsn[rows], reliable, terms.parts)
    return found


def _rows_by_part(
    columns: FileColumns, lns: Lns, rows: Table, lsn: Table, reliable: Mask, parts: int
) -> Iterator[tuple[int, bytes]]:
    part = (lns.hash_1[rows].view(np.uint64) >> HASH_SHIFT) % np.uint64(parts)
    order = np.argsort(part, kind="stable")
    chosen = rows[order]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(lns.hash_1[chosen]),
            pa.array(lns.hash_2[chosen]),
            pa.array(lns.db[chosen]),
            pa.array(lsn[order]),
            pa.array(reliable[order]),
            columns.lns["key"].take(pa.array(chosen)).combine_chunks(),
        ],
        schema=ROWS,
    )
    ends = np.searchsorted(part[order], np.arange(parts, dtype=np.uint64), side="right").tolist()
    begin = 0
    for number, end in enumerate(ends):
        if end > begin:
            yield number, IS_ROWS + batch.slice(begin, end - begin).serialize().to_pybytes()
        begin = end


def look_through(contents: Iterable[bytes]) -> bytes:
    """Compare the versions of one part; returns a WindowPart, packed."""
    batches, notes = [], []
    for content in contents:
        if content[:1] == IS_NOTES:
            notes.append(unpack(content[1:]))
        else:
            batches.append(pa.ipc.read_record_batch(pa.py_buffer(content[1:]), ROWS))
    found = _compare(pa.Table.from_batches(batches, ROWS)) if batches else {}
    return pack(WindowPart(found, tuple(notes)))


def _compare(table: pa.Table) -> dict[int, tuple[bytes, bytes, bytes]]:
    lsn = table["lsn"].to_numpy()
    order = np.argsort(lsn, kind="stable")
    lsn = lsn[order]
    keys = table["key"].combine_chunks().take(pa.array(order))
    _, bounds, data = keys.buffers()
    nothing = np.empty(0, dtype=np.int64)
    lns = Lns(
        entry=nothing,
        db=table["db"].to_numpy()[order],
        txn=nothing,
        abort_lsn=nothing,
        value_bytes=nothing,
        expiration=nothing,
        flags=nothing,
        hash_1=table["hash_1"].to_numpy()[order],
        hash_2=table["hash_2"].to_numpy()[order],
        keys=np.frombuffer(bytearray(data or b""), dtype=np.uint8),
        key_bounds=np.frombuffer(bounds, dtype=np.int64)[: len(order) + 1],
    )
    reliable = table["reliable"].to_numpy()[order]
    rows = np.arange(len(order), dtype=np.int64)
    same, other = compare_versions(lns, rows, reliable)
    later = np.setdiff1d(compare_later(lns, rows, reliable), same)
    parts = [lsn[same], lsn[other], lsn[later]]
    files = np.unique(np.concatenate(parts) >> 32).tolist()
    return {file: _packed(parts, file) for file in files}


def _packed(parts: Sequence[Table], file: int) -> tuple[bytes, bytes, bytes]:
    superseded, collided, later = (pack_rising(offsets_in(lsns, file)) for lsns in parts)
    return superseded, collided, later
