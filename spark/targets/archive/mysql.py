"""Rows of MariaDB and MySQL on their way into an archive file and back, as the server writes them.

MySQL has no DELETE ... RETURNING: the rows are read under FOR UPDATE, then deleted by their keys, with the
condition of the delete once more. As many must go as were read, else the unit is rolled back and tried again.
Text comes and goes as utf8mb4, times in UTC (a DATETIME as it stands).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from spark.formats.arrow import pa, pc
from spark.targets.archive.columns import Column, TableShape, mysql_word
from spark.targets.connection import Connection
from spark.targets.dialects.dialect import Params
from spark.targets.errors import ArchiveFailed, RestoreConflict, TargetLockTimeout, TargetSchemaUnsupported

BLOCK_ROWS = 2_000
INSERT_ROWS = 500
# `delete`, the alias where there is one, the table with its alias and hints, the condition.
_DELETE = re.compile(r"\s*delete (?:\S+ )?from (?P<source>.+?)(?: where (?P<condition>.+))?", re.DOTALL)
_MOMENT = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01]) [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
INT64_MAX = 2**63 - 1


def deleted_blocks(
    conn: Connection, shape: TableShape, delete_sql: str, params: Params, *, alias: str | None, schema: Any
) -> Iterator[Any]:
    """Read and run the delete; its rows as Arrow tables of `schema`, a block at a time.

    Raises: TargetLockTimeout: others have changed what the delete finds, in between: try again.
    """
    found = _DELETE.fullmatch(delete_sql)
    assert found is not None, "a delete of one table"
    source, condition = found["source"], found["condition"] or "true"
    prefix = f"{alias}." if alias and f" as {alias}" in source else ""
    keys: list[Any] = []
    read = 0
    select = f"select {_selected(conn, shape, prefix)} from {source} where {condition} for update"
    with closing(conn.stream_texts(select, params)) as rows:
        while block := list(islice(rows, BLOCK_ROWS)):
            read += len(block)
            keys += _keys(shape, block)
            yield _table(shape, block, schema)
    if not read:
        return
    head = f"delete {alias} from" if prefix else "delete from"
    bound = dict(params or {})
    by_key = ""
    if keys:
        by_key = f" and {_key_columns(conn, shape, prefix)} in :lethe_keys"
        bound["lethe_keys"] = keys
    gone = conn.execute_count(f"{head} {source} where ({condition}){by_key}", bound)
    if gone != read:
        raise TargetLockTimeout(
            f"{read} rows of {shape.table} were read and {gone} deleted: others changed them"
        )


def values_of(shape: TableShape, batch: Any) -> list[list[object]]:
    """The columns of a record batch as the server takes them: int, str, bytes, None."""
    position = 0
    found: list[list[object]] = []
    for column in shape.columns:
        values = batch.column(position)
        position += 1
        kind = shape.kind(column)
        if kind == "timestamp":
            exact = batch.column(position).to_pylist()
            position += 1
            texts = pc.cast(pc.cast(pc.cast(values, pa.int64()), pa.timestamp("us")), pa.string()).to_pylist()
            found.append([other if text is None else text for text, other in zip(texts, exact, strict=True)])
        elif kind == "integer":
            # SQLite holds no greater one: there it is a text.
            found.append([str(value) if (value or 0) > INT64_MAX else value for value in values.to_pylist()])
        else:
            found.append(values.to_pylist())
    return found


def insert_rows(conn: Connection, table: str, shape: TableShape, rows: Iterable[tuple[object, ...]]) -> int:
    """Insert rows of an archive into a quoted table; how many were written.

    Raises: TargetRowConflict: a key is taken. RestoreConflict: a row would come back as another.
    """
    names = [column.name for column in shape.columns]
    columns = ", ".join(map(conn.dialect.quote, names))
    marks = ", ".join(f":p{index}" for index in range(len(names)))
    sql = f"insert into {table} ({columns}) values ({marks})"
    labels = [place for place, column in enumerate(shape.columns) if _lacks_empty(column)]
    written = 0
    source = iter(rows)
    while block := list(islice(source, INSERT_ROWS)):
        plain = [row for row in block if all(row[place] != "" for place in labels)]
        if plain:
            written += conn.execute_many(sql, [_named(row) for row in plain])
        if odd := [row for row in block if any(row[place] == "" for place in labels)]:
            written += _insert_odd(conn, table, sql, shape, odd)
    return written


def _lacks_empty(column: Column) -> bool:
    """Whether '' is no label of an ENUM: there it stands for a value that was none when it came."""
    return mysql_word(column) == "enum" and not re.search(r"[(,]''[,)]", column.source_type)


def _insert_odd(
    conn: Connection, table: str, sql: str, shape: TableShape, rows: list[tuple[object, ...]]
) -> int:
    """A server that is strict takes no such value; what one that is not makes of the others is looked at."""
    [(mode,)] = conn.execute("select @@session.sql_mode")
    conn.execute("set session sql_mode = replace(@@session.sql_mode, 'STRICT_TRANS_TABLES', '')")
    try:
        written = conn.execute_many(sql, [_named(row) for row in rows])
    finally:
        conn.execute("set session sql_mode = :mode", {"mode": mode})
    names = [column.name for column in shape.columns]
    key = [names.index(name) for name in shape.primary_key]
    there = _standing(conn, table, shape, rows, key) if key else {}
    others = sum(there.get(tuple(row[index] for index in key)) != row for row in rows)
    if others:
        raise RestoreConflict(f"{others} rows of {table} would come back as others: restore into a file")
    return written


def _named(row: tuple[object, ...]) -> dict[str, object]:
    return {f"p{index}": value for index, value in enumerate(row)}


def insert_missing(
    conn: Connection, table: str, shape: TableShape, rows: Iterable[tuple[object, ...]]
) -> tuple[int, int]:
    """Insert the rows whose key is free; how many were written, how many were there, the same.

    Raises: RestoreConflict: another row stands under the key of one of them.
    """
    names = [column.name for column in shape.columns]
    key = [names.index(name) for name in shape.primary_key]
    if not key:
        raise TargetSchemaUnsupported(f"{shape.table} has no primary key: restore into a file")
    written = there = others = 0
    source = iter(rows)
    while block := list(islice(source, INSERT_ROWS)):
        known = _standing(conn, table, shape, block, key)
        free = [row for row in block if tuple(row[index] for index in key) not in known]
        written += insert_rows(conn, table, shape, free)
        taken = [row for row in block if tuple(row[index] for index in key) in known]
        there += len(taken)
        others += sum(known[tuple(row[index] for index in key)] != row for row in taken)
    if others:
        raise RestoreConflict(f"{others} keys of {table} are taken by other rows")
    return written, there


def _standing(
    conn: Connection, table: str, shape: TableShape, block: list[tuple[object, ...]], key: list[int]
) -> dict[tuple[object, ...], tuple[object, ...]]:
    """The rows that stand under the keys of a block, by key, in the form in which archived rows are read."""
    listed = [row[key[0]] if len(key) == 1 else tuple(row[index] for index in key) for row in block]
    sql = (
        f"select {_selected(conn, shape, '')} from {table}"
        f" where {_key_columns(conn, shape, '')} in :listed lock in share mode"
    )
    with closing(conn.stream_texts(sql, {"listed": listed})) as found:
        rows = list(found)
    if not rows:
        return {}
    read = values_of(shape, _table(shape, rows, shape.schema({})))
    return {tuple(row[index] for index in key): row for row in zip(*read, strict=True)}


def _selected(conn: Connection, shape: TableShape, prefix: str) -> str:
    return ", ".join(
        _expression(column, f"{prefix}{conn.dialect.quote(column.name)}") for column in shape.columns
    )


def _expression(column: Column, name: str) -> str:
    # The text of a FLOAT is rounded; as a DOUBLE it is exact.
    return f"cast({name} as double)" if mysql_word(column) == "float" else name


def _key_columns(conn: Connection, shape: TableShape, prefix: str) -> str:
    names = [f"{prefix}{conn.dialect.quote(name)}" for name in shape.primary_key]
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _keys(shape: TableShape, block: list[tuple[Any, ...]]) -> list[Any]:
    """The keys of rows, as parameters; nothing where the table has no key: then the numbers must do."""
    names = [column.name for column in shape.columns]
    key = [names.index(name) for name in shape.primary_key]
    if not key:
        return []
    readers = [int if shape.kind(shape.columns[index]) == "integer" else _as_is for index in key]
    if len(key) == 1:
        return [readers[0](row[key[0]]) for row in block]
    return [tuple(read(row[index]) for read, index in zip(readers, key, strict=True)) for row in block]


def _as_is(value: Any) -> Any:
    return value


def _table(shape: TableShape, block: list[tuple[Any, ...]], schema: Any) -> Any:
    arrays: list[Any] = []
    try:
        for column, values in zip(shape.columns, zip(*block, strict=True), strict=True):
            kind = shape.kind(column)
            if kind == "integer":
                numbers = [None if value is None else int(value) for value in values]
                arrays.append(pa.array(numbers, shape.arrow_type(column)))
            elif kind == "timestamp":
                arrays += split_moments(pa.array(values, pa.string()), shape.arrow_type(column))
            else:
                arrays.append(pa.array(values, shape.arrow_type(column)))
        return pa.Table.from_arrays(arrays, schema=schema)
    except (pa.ArrowException, ValueError) as exc:
        raise ArchiveFailed(f"rows of {shape.table} cannot be written: {exc}") from exc


def split_moments(texts: Any, wanted: Any) -> list[Any]:
    """A typed column and the texts that are no moments: 0000-00-00, the 31st of February."""
    nothing = pa.scalar(None, pa.string())
    plain = pc.and_(pc.match_substring_regex(texts, _MOMENT), pc.invert(pc.starts_with(texts, "0000")))
    try:
        typed = pc.cast(pc.if_else(plain, texts, nothing), pa.timestamp("us"))
    except pa.ArrowInvalid:
        plain = pa.array([_is_moment(text) for text in texts.to_pylist()])
        typed = pc.cast(pc.if_else(plain, texts, nothing), pa.timestamp("us"))
    # Through the number, because Arrow would look UTC up in a time zone database that may not be there.
    typed = pc.cast(pc.cast(typed, pa.int64()), wanted)
    return [typed, pc.if_else(plain, nothing, texts)]


def _is_moment(text: str | None) -> bool | None:
    if text is None:
        return None
    try:
        pc.cast(pa.array([text]), pa.timestamp("us"))
    except pa.ArrowInvalid:
        return False
    return re.fullmatch(_MOMENT, text) is not None and not text.startswith("0000")
