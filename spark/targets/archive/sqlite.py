"""Rows of SQLite on their way into an archive file and back, each value with its own storage class."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from spark.formats.arrow import pa
from spark.targets.archive.columns import TableShape, main_class, storage_classes
from spark.targets.connection import Connection
from spark.targets.dialects.dialect import Params

BLOCK_ROWS = 2_000
_CODECS = {"UTF-8": "utf-8", "UTF-16le": "utf-16-le", "UTF-16be": "utf-16-be"}
_CLASS_NAMES = {"INTEGER": "integer", "REAL": "real", "TEXT": "text", "BLOB": "blob"}


class UndecodableText(bytes):
    """A value of class text whose bytes are no text; goes back through `cast(? as text)`."""


def deleted_blocks(
    conn: Connection, shape: TableShape, delete_sql: str, params: Params, *, schema: Any
) -> Iterator[Any]:
    """Run the delete; its rows as Arrow tables of `schema`, a block at a time."""
    names = [conn.dialect.quote(column.name) for column in shape.columns]
    # As bytes, because a text that is not valid in the encoding of the database could not be fetched at all.
    returned = ", ".join(
        f"typeof({name}), case typeof({name}) when 'text' then cast({name} as blob) else {name} end"
        for name in names
    )
    with closing(conn.stream(f"{delete_sql} returning {returned}", params)) as rows:
        while block := list(islice(rows, BLOCK_ROWS)):
            yield _table(shape, block, schema)


def values_of(shape: TableShape, batch: Any) -> list[list[object]]:
    """The columns of a record batch as SQLite's values: int, float, str, bytes, UndecodableText, None."""
    codec = _CODECS[shape.encoding]
    found = []
    for index in range(len(shape.columns)):
        main = batch.column(2 * index).to_pylist()
        exact = batch.column(2 * index + 1).to_pylist()
        found.append([_value(value, other, codec) for value, other in zip(main, exact, strict=True)])
    return found


def insert_rows(
    conn: Connection,
    table: str,
    names: list[str],
    rows: Iterable[tuple[object, ...]],
    *,
    or_ignore: bool = False,
) -> tuple[int, int]:
    """Insert rows of an archive; how many came, how many were written.

    Args:
        table: quoted.
        or_ignore: rows whose key is there already are left out.
    """
    verb = "insert or ignore into" if or_ignore else "insert into"
    head = f"{verb} {table} ({', '.join(conn.dialect.quote(name) for name in names)})"
    [(encoding,)] = conn.execute("pragma encoding")
    came = written = 0
    source = iter(rows)
    while block := list(islice(source, BLOCK_ROWS)):
        came += len(block)
        for sql, values in _by_statement(head, block, wide=encoding != "UTF-8").items():
            written += conn.execute_many(sql, values)
    return came, written


def _by_statement(
    head: str, block: list[tuple[object, ...]], *, wide: bool
) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for row in block:
        marks = ", ".join(_mark(index, value, wide=wide) for index, value in enumerate(row))
        values = {f"p{index}": value for index, value in enumerate(row)}
        found.setdefault(f"{head} values ({marks})", []).append(values)
    return found


def _mark(index: int, value: object, *, wide: bool) -> str:
    if not isinstance(value, UndecodableText):
        return f":p{index}"
    # SQLite takes a bound blob for UTF-8 whatever the encoding of the database is; a literal not.
    return f"cast(x'{value.hex()}' as text)" if wide else f"cast(:p{index} as text)"


def _table(shape: TableShape, block: list[tuple[Any, ...]], schema: Any) -> Any:
    codec = _CODECS[shape.encoding]
    arrays: list[Any] = []
    for index, column in enumerate(shape.columns):
        main_name = _CLASS_NAMES[main_class(column.source_type)]
        main: list[object] = []
        exact: list[dict[str, object] | None] = []
        for row in block:
            value, other = _placed(row[2 * index], row[2 * index + 1], main_name, codec)
            main.append(value)
            exact.append(other)
        arrays.append(pa.array(main, shape.arrow_type(column)))
        arrays.append(pa.array(exact, storage_classes()))
    return pa.Table.from_arrays(arrays, schema=schema)


def _placed(storage_class: str, value: Any, main: str, codec: str) -> tuple[object, dict[str, object] | None]:
    """Where a value goes: into the typed column, or with its class into the other."""
    if storage_class == "null":
        return None, None
    if storage_class == "text":
        return _placed_text(value, main, codec)
    return (value, None) if storage_class == main else (None, {storage_class: value})


def _placed_text(raw: bytes, main: str, codec: str) -> tuple[object, dict[str, object] | None]:
    if main != "text":
        return None, {"text": raw}
    try:
        return raw.decode(codec), None
    except UnicodeDecodeError:
        return None, {"text": raw}


def _value(value: object, other: dict[str, Any] | None, codec: str) -> object:
    if other is None:
        return value
    for storage_class in ("integer", "real", "blob"):
        if other[storage_class] is not None:
            return other[storage_class]
    try:
        return str(other["text"], codec)
    except UnicodeDecodeError:
        return UndecodableText(other["text"])
