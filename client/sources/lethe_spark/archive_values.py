"""Rows of an archive on their way to Spark: as JSON that loses nothing, or as the columns of one table."""

import base64
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import DecimalType, StructField, StructType

from spark.targets.archive.archive import read_shape, rows_of, verified_batches
from spark.targets.archive.columns import TableShape
from spark.targets.archive.sqlite import UndecodableText
from spark.targets.errors import ArchiveCorrupt
from spark.targets.manifest import ManifestEntry

ROWS: Final = pa.schema(
    [
        ("job_id", pa.string()),
        ("unit_id", pa.string()),
        ("table_name", pa.string()),
        ("token", pa.int64()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("primary_key", pa.string()),
        ("values", pa.string()),
    ]
)
ORIGIN: Final = (
    ("_job_id", pa.string()),
    ("_unit_id", pa.string()),
    ("_token", pa.int64()),
    ("_file", pa.string()),
    ("_row", pa.int64()),
)
"""What stands before the columns of a table."""
# Spark has no unsigned numbers: each goes to the next larger type.
_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def json_batches(entry: ManifestEntry) -> Iterator[Any]:
    """The rows of a verified file as record batches of `ROWS`. Raises: ArchiveCorrupt."""
    first = 0
    for shape, batch in verified_batches(entry):
        names = [column.name for column in shape.columns]
        key = [names.index(name) for name in shape.primary_key]
        rows = list(rows_of(shape, batch))
        count = len(rows)
        values = [json_of(dict(zip(names, row, strict=True))) for row in rows]
        keys = [json_of([row[index] for index in key]) if key else None for row in rows]
        yield pa.RecordBatch.from_arrays(
            [
                *_repeated((entry.job_id, entry.unit_id, entry.table_name), count),
                pa.repeat(pa.scalar(entry.token, pa.int64()), count),
                *_repeated((entry.path,), count),
                pa.array(range(first, first + count), pa.int64()),
                pa.array(keys, pa.string()),
                pa.array(values, pa.string()),
            ],
            schema=ROWS,
        )
        first += count


def _repeated(texts: Sequence[str], count: int) -> list[Any]:
    return [pa.repeat(pa.scalar(text, pa.string()), count) for text in texts]


def json_of(value: Any) -> str:
    """A row or a key as JSON: bytes are {"base64"}, text that is none {"text_base64"}, infinity {"real"}."""
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        name = "text_base64" if isinstance(value, UndecodableText) else "base64"
        return {name: base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"real": str(value)}
    return value


def table_schema(entries: Sequence[ManifestEntry]) -> StructType:
    """The columns of a table in all its files; one that a file lacks is null there.

    Raises: ArchiveCorrupt: a column has another type in another file, or a name that one of `ORIGIN` has or
        that a file has twice, or a file cannot be read.
    """
    found: dict[str, tuple[Any, str]] = {}
    for entry in entries:
        shape = read_shape(entry.path)
        _require_other_names(shape, entry)
        for field in shape.schema({}):
            wide = _WIDER.get(field.type, field.type)
            known, where = found.setdefault(field.name, (wide, entry.path))
            if known != wide:
                raise ArchiveCorrupt(
                    f"the column {field.name} is {known} in {where} and {wide} in {entry.path}; leave the "
                    "option 'table' out, and take it from the column 'values'"
                )
    columns = [*ORIGIN, *((name, kind) for name, (kind, _) in found.items())]
    return StructType([StructField(name, _spark_type(kind)) for name, kind in columns])


def _require_other_names(shape: TableShape, entry: ManifestEntry) -> None:
    ours = {name for name, _ in ORIGIN}
    same = sorted(column.name for column in shape.columns if column.name.lower() in ours)
    if same:
        raise ArchiveCorrupt(
            f"the column {same[0]} of {entry.path} has the name of one that says where a row is from; leave "
            "the option 'table' out, and take it from the column 'values'"
        )
    names = [field.name for field in shape.schema({})]
    twice = sorted(name for name in names if names.count(name) > 1)
    if twice:
        raise ArchiveCorrupt(
            f"{entry.path} has two columns called {twice[0]}; leave the option 'table' out, and take them "
            "from the column 'values'"
        )


def _spark_type(kind: Any) -> Any:
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def column_batches(entry: ManifestEntry, schema: StructType) -> Iterator[Any]:
    """The rows of a verified file as record batches of a table's schema. Raises: ArchiveCorrupt."""
    wanted = pa.schema([(field.name, to_arrow_type(field.dataType, timezone="UTC")) for field in schema])
    first = 0
    for shape, batch in verified_batches(entry):
        _require_known(shape, entry, wanted)
        count = batch.num_rows
        origin = {
            "_job_id": pa.repeat(pa.scalar(entry.job_id), count),
            "_unit_id": pa.repeat(pa.scalar(entry.unit_id), count),
            "_token": pa.repeat(pa.scalar(entry.token, pa.int64()), count),
            "_file": pa.repeat(pa.scalar(entry.path), count),
            "_row": pa.array(range(first, first + count), pa.int64()),
        }
        columns = dict(zip(batch.schema.names, batch.columns, strict=True)) | origin
        arrays = [
            pc.cast(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in wanted
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=wanted)
        first += count


def _require_known(shape: TableShape, entry: ManifestEntry, wanted: Any) -> None:
    unknown = {field.name for field in shape.schema({})} - set(wanted.names)
    if unknown:
        raise ArchiveCorrupt(f"{entry.path} has a column {min(unknown)} that it had not when it was planned")
