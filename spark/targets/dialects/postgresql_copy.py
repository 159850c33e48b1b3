"""Arrow columns as the rows of a PostgreSQL `COPY ... FROM STDIN (FORMAT BINARY)`, without a loop over rows.

A row is a count of its fields (int16), then for each field its length (int32, -1: NULL) and its bytes, all
big-endian. Source: PostgreSQL's manual, COPY, "Binary Format".
"""

from __future__ import annotations

from typing import Any, Final

from spark.formats.arrow import np, pa, pc

_BEGIN: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"
# One array of Arrow's binary holds 2 GiB.
_BODY_MAX_BYTES: Final = 2**28


def encode_rows(batch: pa.RecordBatch) -> list[Any]:
    """The parts of one COPY, in their order; each is a buffer of bytes.

    Types: int32 (integer), int64 (bigint), bool (boolean), string (text), binary (bytea).
    """
    return [_BEGIN, *_bodies(batch), _END]


def _bodies(batch: pa.RecordBatch) -> list[Any]:
    if batch.num_rows == 0:
        return []
    if batch.nbytes > _BODY_MAX_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        return _bodies(batch.slice(0, half)) + _bodies(batch.slice(half))
    pieces = [pa.scalar(batch.num_columns.to_bytes(2, "big"), pa.binary())]
    for column in batch.columns:
        data = _bytes_of(column)
        lengths = np.asarray(pc.binary_length(data).fill_null(-1), dtype=">i4")
        pieces += [_fixed(lengths), data.fill_null(b"") if data.null_count else data]
    rows = pc.binary_join_element_wise(*pieces, b"")
    offsets = np.frombuffer(rows.buffers()[1], dtype=np.int32)
    first, last = offsets[rows.offset], offsets[rows.offset + len(rows)]
    return [memoryview(rows.buffers()[2])[first:last]]


def _bytes_of(column: pa.Array) -> pa.Array:
    """The fields as they travel, as an array of binary."""
    kind = column.type
    if pa.types.is_binary(kind):
        return column
    if pa.types.is_string(kind):
        return column.cast(pa.binary())
    if pa.types.is_boolean(kind):
        numbers = np.asarray(column.cast(pa.uint8()).fill_null(0), dtype=np.uint8)
    else:
        assert kind in (pa.int32(), pa.int64()), kind
        wide = ">i4" if kind == pa.int32() else ">i8"
        numbers = np.asarray(column.fill_null(0)).astype(wide)
    return _fixed(numbers, column.is_valid() if column.null_count else None)


def _fixed(numbers: Any, valid: pa.Array | None = None) -> pa.Array:
    """Numbers of one width as binary values."""
    offsets = np.arange(len(numbers) + 1, dtype=np.int32) * numbers.dtype.itemsize
    values = pa.Array.from_buffers(
        pa.binary(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(numbers))]
    )
    return values if valid is None else pc.if_else(valid, values, pa.scalar(None, pa.binary()))
