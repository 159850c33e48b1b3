"""Entries of LNs and commits by the hundred thousand, written column by column into a file's bytes.

The bytes are there first, filled; each field is then put into all entries at once. That an LSN takes as many
bytes as its file's number says is known before its offset is, so that sizes come first and offsets after.
"""

import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np

from spark.formats.je import log as je_log
from spark.formats.je.items import LN_ABORT_LSN, LN_INSERT_CREATION_TIME
from spark.formats.je.packed import ONE_BYTE_MAX

Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"

KEY_DIGITS: Final = 8
KEY_BYTES: Final = KEY_DIGITS + 4
SERIAL_DIGITS: Final = 10
SERIAL_BYTES: Final = SERIAL_DIGITS + 1
# Milliseconds of this century take so many bytes, packed.
TIME_BYTES: Final = 7
COMMIT_END: Final = b"\xff\x00\x00"
PACKED_VALUE_BYTES_MAX: Final = 8
# From here on in a file, LSNs take as many bytes as the file's number says.
OFFSET_MIN: Final = ONE_BYTE_MAX


@dataclass(frozen=True, slots=True)
class Entries:
    """What is to be written, in its order; a Commit has key -1 and names the LN before it.

    Attributes:
        kind: entry types.
        key: number of the record.
        value_bytes: length of the value; -1 in deletions.
        txn: transaction ids.
        previous: index of the LN before in the same transaction, or -1.
        abort: index of the version before, or -1.
    """

    kind: Ints
    key: Ints
    value_bytes: Ints
    txn: Ints
    previous: Ints
    abort: Ints


def packed_widths(values: Ints) -> Ints:
    """Say how many bytes each value takes, packed; values from -119 up."""
    widths = np.ones(len(values), dtype=np.int64)
    for count in range(1, PACKED_VALUE_BYTES_MAX):
        widths += values > ONE_BYTE_MAX + (1 << 8 * (count - 1)) - 1
    return widths


def put_packed(data: Bytes, at: Ints, values: Ints) -> Ints:
    """Write packed integers at their places; return the places behind them."""
    widths = packed_widths(values)
    for width in np.unique(widths).tolist():
        rows = np.flatnonzero(widths == width)
        if width == 1:
            data[at[rows]] = values[rows].astype(np.uint8)
            continue
        raw = np.ascontiguousarray(values[rows] - ONE_BYTE_MAX).view(np.uint8).reshape(-1, 8)
        data[at[rows]] = ONE_BYTE_MAX + width - 1
        put(data, at[rows] + 1, raw[:, : width - 1])
    return at + widths


def put(data: Bytes, at: Ints, fields: Bytes) -> None:
    """Write rows of bytes, or one row everywhere, at their places."""
    data[at[:, None] + np.arange(fields.shape[-1])] = fields


def digits(numbers: Ints, count: int) -> Bytes:
    """Write numbers in decimal, with zeros before them."""
    powers = 10 ** np.arange(count - 1, -1, -1, dtype=np.int64)
    return (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def keys_of(numbers: Ints) -> Bytes:
    """Write the keys of records: `user00000017`."""
    keys = np.empty((len(numbers), KEY_BYTES), dtype=np.uint8)
    keys[:, :4] = np.frombuffer(b"user", dtype=np.uint8)
    keys[:, 4:] = digits(numbers, KEY_DIGITS)
    return keys


def sizes_at_least(entries: Entries) -> Ints:
    """Say how large entries are without what depends on LSNs."""
    lengths = np.maximum(entries.value_bytes, 0)
    record = 3 + 1 + 1 + 1 + KEY_BYTES + packed_widths(entries.value_bytes) + lengths
    common = je_log.HEADER_BYTES + TIME_BYTES + packed_widths(entries.txn)
    return common + np.where(entries.key < 0, len(COMMIT_END), record)


def entry_sizes(entries: Entries, at_least: Ints, lsns: Ints, first: int, end: int, number: int) -> Ints:
    """Say how large entries will be with their headers, if they lie in the file of a number."""
    part = slice(first, end)
    own = int(packed_widths(np.array([je_log.lsn_of(number, OFFSET_MIN)]))[0])

    def reference(index: Ints) -> Ints:
        earlier = (
            packed_widths(lsns[np.minimum(index, first - 1)]) if first else np.zeros(len(index), np.int64)
        )
        return np.where(index < 0, 1, np.where(index >= first, own, earlier))

    abort = entries.abort[part]
    sizes = at_least[part] + reference(entries.previous[part])
    return sizes + np.where(abort < 0, 0, reference(abort))


def put_entries(
    data: Bytes,
    entries: Entries,
    lsns: Ints,
    first: int,
    offsets: Ints,
    *,
    previous: int,
    db_id: int,
    begun_ms: int,
) -> None:
    """Write entries into the bytes of a file that begins at offset 0 of the data.

    Args:
        data: the file's bytes, filled with what values consist of.
        entries: all entries.
        lsns: of all entries up to the last one that is written.
        first: index of the first one to write.
        offsets: where they begin, and where the last one ends.
        previous: offset of the entry before.
        db_id: the database, a number of one byte.
        begun_ms: the time of the first entry of all; ten take a millisecond.
    """
    at, index = offsets[:-1], np.arange(first, first + len(offsets) - 1)
    is_commit = entries.key[index] < 0
    before = np.concatenate([[previous], at[:-1]])
    header = np.zeros(
        len(at), dtype=[("sum", "<u4"), ("type", "u1"), ("flags", "u1"), ("prev", "<u4"), ("size", "<i4")]
    )
    header["type"], header["prev"] = entries.kind[index], before
    header["size"] = np.diff(offsets) - je_log.HEADER_BYTES
    put(data, at, header.view(np.uint8).reshape(-1, je_log.HEADER_BYTES))
    times = begun_ms + index // 10
    _put_lns(data, entries, lsns, index[~is_commit], at[~is_commit], times[~is_commit], db_id)
    rows = index[is_commit]
    place = put_packed(data, at[is_commit] + je_log.HEADER_BYTES, lsns[entries.previous[rows]])
    place = put_packed(data, place, entries.txn[rows])
    place = put_packed(data, place, times[is_commit])
    put(data, place, np.frombuffer(COMMIT_END, dtype=np.uint8))
    view, limits = data.data, offsets.tolist()
    sums = [zlib.adler32(view[a + 4 : b]) for a, b in pairwise(limits)]
    put(data, at, np.array(sums, dtype="<u4").view(np.uint8).reshape(-1, 4))


def _put_lns(
    data: Bytes, entries: Entries, lsns: Ints, rows: Ints, at: Ints, times: Ints, db_id: int
) -> None:
    abort, lengths = entries.abort[rows], entries.value_bytes[rows]
    flags = np.zeros((len(rows), 4), dtype=np.uint8)
    flags[:, 0] = np.where(abort < 0, 0, LN_ABORT_LSN)
    flags[:, 2] = np.where(abort < 0, LN_INSERT_CREATION_TIME, 0)
    flags[:, 3] = db_id
    place = at + je_log.HEADER_BYTES
    put(data, place, flags)
    place = put_packed(data, place + 4, times)
    data[place], data[place + 1] = 0, KEY_BYTES
    put(data, place + 2, keys_of(entries.key[rows]))
    place = put_packed(data, place + 2 + KEY_BYTES, lengths)
    held = lengths >= SERIAL_BYTES
    data[place[held]] = ord("v")
    put(data, place[held] + 1, digits(rows[held], SERIAL_DIGITS))
    place = place + np.maximum(lengths, 0)
    aborting = abort >= 0
    place[aborting] = put_packed(data, place[aborting], lsns[abort[aborting]])
    place = put_packed(data, place, entries.txn[rows])
    previous = entries.previous[rows]
    put_packed(data, place, np.where(previous < 0, je_log.NULL_LSN, lsns[np.maximum(previous, 0)]))


def slots_of(keys: Ints, lsns: Ints, sizes: Ints) -> tuple[bytes, Ints]:
    """Write slots of BINs; return their bytes, and where each begins and the last one ends."""
    widths = 1 + KEY_BYTES + 8 + 1 + packed_widths(sizes)
    limits = np.concatenate([[0], np.cumsum(widths)])
    data, at = np.zeros(int(limits[-1]), dtype=np.uint8), limits[:-1]
    data[at] = KEY_BYTES
    put(data, at + 1, keys_of(keys))
    put(data, at + 1 + KEY_BYTES, np.ascontiguousarray(lsns).view(np.uint8).reshape(-1, 8))
    put_packed(data, at + 1 + KEY_BYTES + 8 + 1, sizes)
    return data.tobytes(), limits
