"""Batches as NDJSON: an object a line, its fields named like the columns, bytes in standard base64."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from spark.formats.arrow import pa
from spark.formats.changes.checks import check_values
from spark.formats.changes.errors import BatchTooLarge, BatchUnreadable
from spark.formats.replica import DATABASE_MAX_BYTES, KEY_MAX_BYTES, VALUE_MAX_BYTES

LINE_MAX_BYTES: Final = 2 * (DATABASE_MAX_BYTES + KEY_MAX_BYTES + VALUE_MAX_BYTES)
"""A record at its bounds takes two thirds of it; a longer line is not even parsed."""
_SHOWN_MAX: Final = 60
_NULL_DELETES: Final = frozenset({"value", "payload"})


def encode_ndjson(batch: pa.RecordBatch) -> bytes:
    """Write a batch, a line for each row."""
    columns = [_json_values(batch.column(field.name), field) for field in batch.schema]
    lines = (
        json.dumps(dict(zip(batch.schema.names, row, strict=True)), separators=(",", ":"))
        for row in zip(*columns, strict=True)
    )
    return "".join(f"{line}\n" for line in lines).encode()


def decode_ndjson(body: bytes, schema: pa.Schema, *, rows_max: int, bytes_max: int) -> pa.RecordBatch:
    """Read NDJSON as one batch of the schema; empty lines are passed over.

    Args:
        bytes_max: of all decoded values.
    Raises: BatchUnreadable: with the number of the line (from 1), or of the row. BatchTooLarge.
    """
    columns: dict[str, list[Any]] = {field.name: [] for field in schema}
    fields = {field.name: field for field in schema}
    size = 0
    for rows, (number, line) in enumerate(_lines(body)):
        if rows >= rows_max:
            raise BatchTooLarge(f"more than {rows_max} rows")
        found = _object(line, number)
        for name in found:
            if name not in fields:
                raise BatchUnreadable(f"line {number}: unknown field {name[:_SHOWN_MAX]!r}")
        for name, values in columns.items():
            value = _value(found, fields[name], number)
            size += len(value) if isinstance(value, str | bytes) else 1
            values.append(value)
        if size > bytes_max:
            raise BatchTooLarge(f"decodes to more than {bytes_max} bytes")
    batch = pa.RecordBatch.from_arrays(
        [pa.array(columns[field.name], field.type) for field in schema], schema=schema
    )
    check_values(batch)
    return batch


def _lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    start = number = 0
    while start < len(body):
        found = body.find(b"\n", start)
        end = len(body) if found < 0 else found
        number += 1
        if end - start > LINE_MAX_BYTES:
            raise BatchUnreadable(f"line {number} has more than {LINE_MAX_BYTES} bytes")
        line = body[start:end]
        if line.strip():
            yield number, line
        start = end + 1


def _object(line: bytes, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line.decode(), object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        raise BatchUnreadable(f"line {number}: no JSON: {str(error)[:200]}") from error
    if not isinstance(found, dict):
        raise BatchUnreadable(f"line {number}: no JSON object")
    return found


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field stands twice in an object")
    return found


def _value(found: Mapping[str, Any], field: pa.Field, number: int) -> object:
    """The value of one field as its column takes it."""
    if field.name not in found:
        if field.nullable and field.name not in _NULL_DELETES:
            return None
        raise BatchUnreadable(f"line {number}: {field.name} is missing")
    value = found[field.name]
    if value is None and field.nullable:
        return None
    wanted = bool if pa.types.is_boolean(field.type) else str
    if not isinstance(value, wanted):
        shown = "null" if value is None else type(value).__name__
        raise BatchUnreadable(f"line {number}: {field.name} is {shown}, not {_WORDS[wanted]}")
    if not isinstance(value, str):
        return value
    if pa.types.is_binary(field.type):
        return _bytes(value, field.name, number)
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise BatchUnreadable(f"line {number}: {field.name} holds half a character")
    return value


_WORDS: Final = {bool: "true or false", str: "a string"}


def _bytes(text: str, name: str, number: int) -> bytes:
    try:
        decoded = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BatchUnreadable(f"line {number}: {name} is no base64: {str(error)[:100]}") from error
    # Python overlooks bits behind the last byte: two texts would mean one value.
    if base64.b64encode(decoded).decode() != text:
        raise BatchUnreadable(f"line {number}: {name} is no canonical base64")
    return decoded


def _json_values(column: pa.Array, field: pa.Field) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if not pa.types.is_binary(field.type):
        return values
    return [None if value is None else base64.b64encode(value).decode() for value in values]
