"""What the values of a batch must be, column by column; all rows of a column are looked at together.

Which rules hold is a matter of the columns that are there: `csn` and `prev` of records, `is_tombstone` of
entries. A database, key or value that is too long makes a batch of local changes or of entries unreadable;
among records it refuses one record, not the batch: `record_faults`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from spark.formats.arrow import np, pa, pc
from spark.formats.changes.errors import BatchUnreadable
from spark.formats.csn import CSN_CHARS, RID_MAX, RID_MIN
from spark.formats.replica import DATABASE_MAX_BYTES, KEY_MAX_BYTES, VALUE_MAX_BYTES

if TYPE_CHECKING:
    from numpy.typing import NDArray

KIND_MAX_CHARS: Final = 40
_NO_DIGIT: Final = 255
_RID_PLACES: Final = (4096, 256, 16, 1)
_BYTES_BOUNDS: Final = {
    "database": (1, DATABASE_MAX_BYTES),
    "key": (1, KEY_MAX_BYTES),
    "value": (0, VALUE_MAX_BYTES),
    "payload": (0, VALUE_MAX_BYTES),
}
_CHANGE: Final = "CHANGE"
_SHOWN_MAX: Final = 60

Csns: TypeAlias = "NDArray[np.bytes_]"
Numbers: TypeAlias = "NDArray[np.integer]"


@cache
def _digits() -> NDArray[np.uint8]:
    """The value of each byte as a hexadecimal digit."""
    values = np.full(256, _NO_DIGIT, dtype=np.uint8)
    values[np.frombuffer(b"0123456789abcdef", dtype=np.uint8)] = np.arange(16)
    return values


@dataclass(frozen=True, slots=True)
class RecordFault:
    """A record that may not be applied, by its row."""

    row: int
    detail: str


def check_values(batch: pa.RecordBatch) -> None:
    """Look at every value of a batch whose columns and types are right already.

    Raises: BatchUnreadable: the first fault, with its column and row (from 0).
    """
    for field in batch.schema:
        column = batch.column(field.name)
        if not field.nullable and column.null_count:
            row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
            raise BatchUnreadable(f"{field.name} of row {row} is null")
    if "csn" in batch.schema.names:
        _check_csns(batch)
    if "kind" in batch.schema.names:
        lengths = _numbers(pc.utf8_length(batch.column("kind")))
        _refuse(
            "kind", (lengths < 1) | (lengths > KIND_MAX_CHARS), f"not 1 to {KIND_MAX_CHARS} characters long"
        )
        # PostgreSQL's text holds every character but this one.
        _refuse("kind", np.asarray(pc.match_substring(batch.column("kind"), "\0")), "text with a NUL")
    else:
        _check_lengths(batch)
    if "is_tombstone" in batch.schema.names:
        _check_entries(batch)


def record_faults(batch: pa.RecordBatch) -> list[RecordFault]:
    """Find the records whose database, key or payload no replica keeps: too long, or a CHANGE without."""
    is_change = np.asarray(pc.equal(batch.column("kind"), _CHANGE))
    faults = []
    for name in ("database", "key", "payload"):
        lengths, (least, most) = byte_lengths(batch.column(name)), _BYTES_BOUNDS[name]
        for row in np.flatnonzero((lengths > most) | (is_change & (lengths < least))):
            found = f"{name} has {lengths[row]} bytes, {least} to {most} are kept"
            faults.append(RecordFault(int(row), found))
    return sorted(faults, key=lambda fault: fault.row)


def byte_lengths(column: pa.Array) -> Numbers:
    """The length of each value of a binary or string column; a null has none: 0."""
    return _numbers(pc.fill_null(pc.binary_length(column), 0))


def rids_of(csns: pa.Array) -> Numbers:
    """The replica of each CSN of a column without nulls, all of them of the right form."""
    return _rids(_as_bytes(csns))


def csn_column(csns: pa.Array) -> Csns:
    """CSNs of a column without nulls as an array that compares like them."""
    return _as_bytes(csns).reshape(-1).view(f"S{CSN_CHARS}")


def _check_csns(batch: pa.RecordBatch) -> None:
    csns = batch.column("csn")
    rids = _checked_rids("csn", csns)
    if "prev" not in batch.schema.names:
        return
    _check_ascending(csn_column(csns), rids)
    previous = batch.column("prev")
    rows = np.flatnonzero(np.asarray(previous.is_valid()))
    if not len(rows):
        return
    present = previous.drop_null()
    foreign = _checked_rids("prev", present, rows) != rids[rows]
    _refuse("prev", foreign, "of another replica than its csn", rows)
    _refuse("prev", csn_column(present) >= csn_column(csns)[rows], "not before its csn", rows)


def _checked_rids(name: str, csns: pa.Array, rows: Numbers | None = None) -> Numbers:
    lengths = byte_lengths(csns)
    _refuse(name, lengths != CSN_CHARS, f"not {CSN_CHARS} hexadecimal digits", rows)
    digits = _as_bytes(csns)
    _refuse(name, (_digits()[digits] == _NO_DIGIT).any(axis=1), "no lower-case hexadecimal digits", rows)
    rids = _rids(digits)
    _refuse(name, (rids < RID_MIN) | (rids > RID_MAX), f"of a replica outside {RID_MIN}..{RID_MAX}", rows)
    return rids


def _check_ascending(csns: Csns, rids: Numbers) -> None:
    if len(csns) < 2 or bool(np.all(csns[1:] > csns[:-1])):
        return
    order = np.argsort(rids, kind="stable")
    same = rids[order][1:] == rids[order][:-1]
    falls = same & (csns[order][1:] <= csns[order][:-1])
    _refuse("csn", falls, "not after the one before it of the same replica", order[1:])


def _check_lengths(batch: pa.RecordBatch) -> None:
    for name, (least, most) in _BYTES_BOUNDS.items():
        if name in batch.schema.names:
            lengths = byte_lengths(batch.column(name))
            outside = (lengths < least) | (lengths > most)
            _refuse(name, outside, f"not of {least} to {most} bytes")


def _check_entries(batch: pa.RecordBatch) -> None:
    """A tombstone has no value, everything else has one; keys ascend: the last one is the cursor."""
    is_null = np.asarray(batch.column("value").is_null())
    is_tombstone = np.asarray(batch.column("is_tombstone"))
    _refuse("value", is_null != is_tombstone, "null, or not, against is_tombstone")
    if len(batch) < 2:
        return
    databases, keys = batch.column("database"), batch.column("key")
    later_database = pc.greater(databases[1:], databases[:-1])
    later_key = pc.and_(pc.equal(databases[1:], databases[:-1]), pc.greater(keys[1:], keys[:-1]))
    ascends = np.asarray(pc.or_(later_database, later_key))
    _refuse("key", ~ascends, "not after the one before it", np.arange(1, len(batch)))


def _refuse(name: str, is_wrong: NDArray[np.bool_], fault: str, rows: Numbers | None = None) -> None:
    """Raise for the first wrong row; `rows` are the numbers of the rows looked at, where not all were."""
    found = np.flatnonzero(is_wrong)
    if len(found):
        row = found[0] if rows is None else rows[found[0]]
        raise BatchUnreadable(f"{name} of row {row} is {fault}")


def _as_bytes(csns: pa.Array) -> NDArray[np.uint8]:
    """CSNs as (n, 20) bytes; every value is 20 bytes long, so they lie side by side."""
    offsets = np.frombuffer(csns.buffers()[1], dtype=np.int32)
    data = csns.buffers()[2]
    if not len(csns) or data is None:
        return np.empty((0, CSN_CHARS), dtype=np.uint8)
    first = int(offsets[csns.offset])
    found = np.frombuffer(data, dtype=np.uint8, offset=first, count=CSN_CHARS * len(csns))
    return found.reshape(-1, CSN_CHARS)


def _rids(digits: NDArray[np.uint8]) -> Numbers:
    found: Numbers = _digits()[digits[:, 12:16]].astype(np.int32) @ np.array(_RID_PLACES, dtype=np.int32)
    return found


def _numbers(column: pa.Array) -> Numbers:
    found: Numbers = np.asarray(column)
    return found
