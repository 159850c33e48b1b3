"""Rows of PostgreSQL on their way into an archive file and back, in the server's own text.

Out: `COPY (DELETE ... RETURNING ...) TO STDOUT` as CSV with every value quoted, so that NULL (nothing) and ''
(two quotes) differ. In: COPY's text format, escaped here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

from spark.formats.arrow import pa, pa_csv, pc
from spark.targets.archive.columns import TableShape, has_zone, quoted_columns
from spark.targets.connection import Connection
from spark.targets.dialects.dialect import Params
from spark.targets.errors import ArchiveFailed

# One row group: large enough to compress, small enough to hold several times in memory.
BLOCK_BYTES = 8 * 2**20
# What Arrow reads to the microsecond; infinity, BC and five-digit years are not of this form.
_PLAIN_TIMESTAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
_ESCAPES = {
    b"\\": b"\\\\",
    b"\n": b"\\n",
    b"\r": b"\\r",
    b"\t": b"\\t",
    b"\b": b"\\b",
    b"\f": b"\\f",
    b"\v": b"\\v",
}
_ESCAPED = re.compile(rb"[\\\n\r\t\x08\x0c\x0b]")


def deleted_blocks(
    conn: Connection, shape: TableShape, delete_sql: str, params: Params, *, alias: str | None, schema: Any
) -> Iterator[Any]:
    """Run the delete; its rows as Arrow tables of `schema`, a block at a time.

    Raises: ArchiveFailed: Arrow did not read as many rows as the server sent.
    """
    names = [column.name for column in shape.columns]
    returned = quoted_columns(conn, names, alias=alias)
    options = f"format csv, force_quote *{encoding_option(shape)}"
    sql = f"copy ({delete_sql} returning {returned}) to stdout ({options})"
    rows: list[bytes] = []
    held = 0
    with conn.copy_out(sql, params) as messages:
        for message in messages:
            rows.append(message)
            held += len(message)
            if held >= BLOCK_BYTES:
                yield _parsed(shape, rows, schema)
                rows, held = [], 0
    if rows:
        yield _parsed(shape, rows, schema)


def encoding_option(shape: TableShape) -> str:
    """In a SQL_ASCII database texts are bytes that the server must hand over without a look at them."""
    return ", encoding 'SQL_ASCII'" if shape.encoding == "SQL_ASCII" else ""


def copy_lines(rows: Iterable[tuple[object, ...]]) -> Iterator[bytes]:
    """Rows of an archive file in COPY's text format."""
    for row in rows:
        yield b"\t".join(map(_field, row)) + b"\n"


def texts_of(shape: TableShape, batch: Any) -> list[list[object]]:
    """The columns of a record batch as Python values: int, str (bytes in a SQL_ASCII database), None."""
    position = 0
    found: list[list[object]] = []
    for column in shape.columns:
        values = batch.column(position)
        position += 1
        if shape.kind(column) != "timestamp":
            found.append(values.to_pylist())
            continue
        exact = batch.column(position).to_pylist()
        position += 1
        found.append(_timestamp_texts(values, exact, zone=has_zone(column)))
    return found


def _parsed(shape: TableShape, rows: list[bytes], schema: Any) -> Any:
    block = b"".join(rows)
    raw_types = {
        str(index): pa.string() if shape.kind(column) == "timestamp" else shape.arrow_type(column)
        for index, column in enumerate(shape.columns)
    }
    table = pa_csv.read_csv(
        io.BytesIO(block),
        read_options=pa_csv.ReadOptions(
            column_names=list(raw_types), block_size=len(block) + 1, use_threads=False
        ),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pa_csv.ConvertOptions(
            column_types=raw_types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    if table.num_rows != len(rows):
        raise ArchiveFailed(f"{len(rows)} rows of {shape.table} came, {table.num_rows} were understood")
    arrays: list[Any] = []
    for index, column in enumerate(shape.columns):
        values = table.column(index)
        arrays.extend(
            _split_timestamps(values, zone=has_zone(column))
            if shape.kind(column) == "timestamp"
            else [values]
        )
    return pa.Table.from_arrays(arrays, schema=schema)


def _split_timestamps(texts: Any, *, zone: bool) -> list[Any]:
    """A typed column and the texts that no such type can hold."""
    bare = pc.replace_substring_regex(texts, r"\+00$", "") if zone else texts
    plain = pc.match_substring_regex(bare, _PLAIN_TIMESTAMP)
    nothing = pa.scalar(None, pa.string())
    typed = pc.cast(pc.if_else(plain, bare, nothing), pa.timestamp("us"))
    if zone:
        # Through the number, because Arrow would look UTC up in a time zone database that may not be there.
        typed = pc.cast(pc.cast(typed, pa.int64()), pa.timestamp("us", tz="UTC"))
    return [typed, pc.if_else(plain, nothing, texts)]


def _timestamp_texts(values: Any, exact: list[str | None], *, zone: bool) -> list[object]:
    bare = pc.cast(pc.cast(pc.cast(values, pa.int64()), pa.timestamp("us")), pa.string()).to_pylist()
    suffix = "+00" if zone else ""
    return [other if text is None else text + suffix for text, other in zip(bare, exact, strict=True)]


def _field(value: object) -> bytes:
    if value is None:
        return b"\\N"
    raw = value if isinstance(value, bytes) else str(value).encode()
    return _ESCAPED.sub(lambda found: _ESCAPES[found.group()], raw)
