"""Batches of changes, records or entries as bodies of requests: Arrow IPC streams, and NDJSON for humans.

The schemas are the caller's (spark/replication/records.py). A body comes from outside: whatever it holds, it
is read whole and right, or refused with BatchUnreadable or BatchTooLarge, and what it claims is compared with
the bounds before anything of that size is allocated.

Arrow: buffers are compressed with zstd when written; plain and LZ4 ones are read too. Columns go by name, in
any order; large, dictionary-encoded and view forms of strings and bytes are cast. `prev` may be missing (all
null); `value` and `payload` may not, for null deletes there. Unknown columns are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from spark.formats.arrow import np, pa
from spark.formats.changes.checks import byte_lengths, check_values
from spark.formats.changes.errors import BatchTooLarge, BatchUnreadable
from spark.formats.changes.json_form import decode_ndjson, encode_ndjson
from spark.formats.changes.messages import measure_stream

__all__ = [
    "ARROW_MEDIA_TYPE",
    "BATCH_BYTES",
    "NDJSON_MEDIA_TYPE",
    "BatchTooLarge",
    "BatchUnreadable",
    "decode_arrow",
    "decode_ndjson",
    "encode_arrow",
    "encode_ndjson",
    "row_bytes",
]

ARROW_MEDIA_TYPE: Final = "application/vnd.apache.arrow.stream"
NDJSON_MEDIA_TYPE: Final = "application/x-ndjson"
BATCH_BYTES: Final = 2_048
"""What a batch of one row takes beside `row_bytes`: its buffers begin at round addresses."""
ROW_BYTES: Final = 32
"""Offsets and validity bits of the widest row."""
_VIEW_BYTES: Final = 16
_NULL_DELETES: Final = frozenset({"value", "payload"})


class _Ways(NamedTuple):
    """How pyarrow reads and writes a batch, and what it may be handed.

    Args:
        refusals: what it raises of hostile bytes; UnicodeDecodeError, of names, is a ValueError.
        forms: the type of a column to those that are taken for it.
    """

    read: pa.ipc.IpcReadOptions
    write: pa.ipc.IpcWriteOptions
    refusals: tuple[type[Exception], ...]
    forms: Mapping[pa.DataType, tuple[pa.DataType, ...]]
    views: tuple[pa.DataType, ...]


@cache
def _ways() -> _Ways:
    return _Ways(
        read=pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.DataTypeSpecific, use_threads=False),
        write=pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=1), use_threads=False),
        refusals=(pa.ArrowException, OSError, EOFError, ValueError, TypeError, KeyError),
        forms={
            pa.string(): (pa.string(), pa.large_string(), pa.string_view()),
            pa.binary(): (pa.binary(), pa.large_binary(), pa.binary_view()),
            pa.bool_(): (pa.bool_(),),
        },
        views=(pa.string_view(), pa.binary_view()),
    )


def row_bytes(batch: pa.RecordBatch) -> np.typing.NDArray[np.int64]:
    """What each row takes once it is decoded: rows of `bytes_max - BATCH_BYTES` are read with `bytes_max`."""
    sizes = np.full(len(batch), ROW_BYTES, dtype=np.int64)
    for column in batch.columns:
        if not pa.types.is_boolean(column.type):
            sizes += byte_lengths(column)
    return sizes


def encode_arrow(batch: pa.RecordBatch) -> bytes:
    """Write a batch as an Arrow IPC stream whose buffers are compressed with zstd."""
    if not len(batch):
        # Of an empty slice Arrow would write all that it is a slice of.
        batch = _nothing(batch.schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_ways().write) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def decode_arrow(
    body: bytes | memoryview, schema: pa.Schema, *, rows_max: int, bytes_max: int
) -> pa.RecordBatch:
    """Read an Arrow IPC stream of any number of batches as one batch of the schema.

    Args:
        bytes_max: of all decoded buffers, offsets and validity bits included.
    Raises: BatchUnreadable, BatchTooLarge; nothing else.
    """
    try:
        return _decoded(pa.py_buffer(body), schema, rows_max=rows_max, bytes_max=bytes_max)
    except _ways().refusals as error:
        text = " ".join(str(error).split())[:300]
        raise BatchUnreadable(f"no readable Arrow stream: {text or type(error).__name__}") from error


def _decoded(body: pa.Buffer, schema: pa.Schema, *, rows_max: int, bytes_max: int) -> pa.RecordBatch:
    measure_stream(body, rows_max=rows_max, bytes_max=bytes_max)
    with pa.ipc.open_stream(body, options=_ways().read) as reader:
        _check_schema(reader.schema, schema)
        parts = []
        left = bytes_max
        for part in reader:
            # Nothing looks into the columns before this: lengths and offsets are the body's own.
            part.validate(full=True)
            columns = {name: _without_hidden(part.column(name)) for name in part.schema.names}
            left -= sum(_cast_bytes(column) for column in columns.values())
            if left < 0:
                raise BatchTooLarge(f"decodes to more than {bytes_max} bytes")
            parts.append(_cast(columns, schema, rows=len(part)))
    whole = pa.Table.from_batches(parts, schema=schema).combine_chunks().to_batches()
    batch = whole[0] if whole else _nothing(schema)
    check_values(batch)
    return batch


def _nothing(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _check_schema(found: pa.Schema, wanted: pa.Schema) -> None:
    if len(set(found.names)) != len(found.names):
        raise BatchUnreadable("a column stands twice in the schema")
    for field in found:
        if field.name not in wanted.names:
            raise BatchUnreadable(f"unknown column {field.name[:60]!r}")
        plain = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        forms = _ways().forms[wanted.field(field.name).type]
        if plain not in forms:
            raise BatchUnreadable(
                f"column {field.name} is {str(field.type)[:100]}, not {wanted.field(field.name).type}"
            )
    for field in wanted:
        if field.name not in found.names and (not field.nullable or field.name in _NULL_DELETES):
            raise BatchUnreadable(f"column {field.name} is missing")


def _without_hidden(column: pa.Array) -> pa.Array:
    """A column of views, with empty ones where it is null.

    Nobody validates a view behind a null, and Arrow's casts follow it all the same, wherever it points.
    """
    if column.type not in _ways().views or not column.null_count:
        return column
    views = np.frombuffer(column.buffers()[1], dtype=np.int32).reshape(-1, _VIEW_BYTES // 4)
    views = views[column.offset : column.offset + len(column)].copy()
    is_null = np.asarray(column.is_null())
    views[is_null] = 0
    data = [pa.array(~is_null).buffers()[1], pa.py_buffer(views), *column.buffers()[2:]]
    return pa.Array.from_buffers(column.type, len(column), data)


def _cast_bytes(column: pa.Array) -> int:
    """What a column's values take once they are plain: of dictionaries and views much more than before."""
    if pa.types.is_dictionary(column.type):
        indices = column.indices.drop_null().cast(pa.int64())
        return int(_value_lengths(column.dictionary)[np.asarray(indices)].sum())
    if column.type in _ways().views:
        return int(_value_lengths(column).sum())
    return 0


def _value_lengths(column: pa.Array) -> np.typing.NDArray[np.int64]:
    if column.type not in _ways().views:
        return byte_lengths(column).astype(np.int64)
    if not len(column):
        return np.empty(0, dtype=np.int64)
    views = np.frombuffer(column.buffers()[1], dtype=np.int32).reshape(-1, _VIEW_BYTES // 4)
    return views[column.offset : column.offset + len(column), 0].astype(np.int64)


def _cast(columns: Mapping[str, pa.Array], schema: pa.Schema, *, rows: int) -> pa.RecordBatch:
    found = []
    for field in schema:
        column = columns.get(field.name)
        if column is None:
            column = pa.nulls(rows, field.type)
        elif pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        found.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(found, schema=schema)
