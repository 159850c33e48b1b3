"""Rows of MariaDB on their way into an archive file: deleted and returned by one statement, a line for each.

The server writes each row as a line of CSV with every text quoted, so that NULL (nothing) and '' (two quotes)
differ, as PostgreSQL's COPY does; Arrow reads the lines. MySQL, which returns nothing from a DELETE, and
types whose text is not what the server sends for them go the way of `mysql.py`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from spark.formats.arrow import pa, pa_csv
from spark.targets.archive.columns import Column, TableShape, mysql_word
from spark.targets.archive.mysql import split_moments
from spark.targets.connection import Connection
from spark.targets.dialects.dialect import Params
from spark.targets.errors import ArchiveFailed

NOTED = "product"
_NUMBERS = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "integer", "bigint", "decimal", "float", "double", "year"}
)
_PLAIN = frozenset({"date", "datetime", "timestamp", "time"})
"""Texts without a quote."""
_TEXTS = re.compile(r"(var)?char|(tiny|medium|long)?text|enum|set|date|datetime|timestamp|time")
_BYTES = re.compile(r"(var)?binary|(tiny|medium|long)?blob")


def can_return(conn: Connection, shape: TableShape) -> bool:
    """Whether the server returns the rows of a DELETE, and every column of the table has such a text."""
    if NOTED not in conn.noted:
        [(version,)] = conn.execute("select version()")
        conn.noted[NOTED] = "mariadb" if "mariadb" in str(version).lower() else "mysql"
    words = [mysql_word(column) for column in shape.columns]
    return conn.noted[NOTED] == "mariadb" and all(
        word in _NUMBERS or _TEXTS.fullmatch(word) or _BYTES.fullmatch(word) for word in words
    )


def deleted_blocks(
    conn: Connection, shape: TableShape, delete_sql: str, params: Params, *, schema: Any
) -> Iterator[Any]:
    """Run the delete of one table; its rows as Arrow tables of `schema`, a block at a time.

    Raises: ArchiveFailed: Arrow did not read what the server sent.
    """
    line = ", ',', ".join(_field(conn, column) for column in shape.columns)
    sql = f"{delete_sql} returning cast(concat({line}) as binary)"
    with closing(conn.stream_lines(sql, params)) as blocks:
        for block in blocks:
            lines = [line for line in block if line is not None]
            if len(lines) < len(block):
                raise ArchiveFailed(f"a row of {shape.table} is longer than max_allowed_packet")
            yield _parsed(shape, lines, schema)


def _field(conn: Connection, column: Column) -> str:
    name, word = conn.dialect.quote(column.name), mysql_word(column)
    if word in _NUMBERS:
        # The text of a FLOAT is rounded; as a DOUBLE it is exact.
        return f"ifnull({f'cast({name} as double)' if word == 'float' else name}, '')"
    if word in _PLAIN:
        return f"""ifnull(concat('"', {name}, '"'), '')"""
    # Compared as bytes: a search letter by letter takes the server several times as long.
    text = name if _BYTES.fullmatch(word) else f"cast(convert({name} using utf8mb4) as binary)"
    return f"""if({name} is null, '', concat('"', replace({text}, '"', '""'), '"'))"""


def _parsed(shape: TableShape, block: list[bytes], schema: Any) -> Any:
    text = b"\n".join(block) + b"\n"
    types = {
        str(place): pa.string() if shape.kind(column) == "timestamp" else shape.arrow_type(column)
        for place, column in enumerate(shape.columns)
    }
    try:
        table = pa_csv.read_csv(
            io.BytesIO(text),
            read_options=pa_csv.ReadOptions(
                column_names=list(types), block_size=len(text) + 1, use_threads=False
            ),
            parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=pa_csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowException as error:
        raise ArchiveFailed(f"rows of {shape.table} cannot be written: {error}") from error
    if table.num_rows != len(block):
        raise ArchiveFailed(f"{len(block)} rows of {shape.table} came, {table.num_rows} were understood")
    arrays: list[Any] = []
    for place, column in enumerate(shape.columns):
        values = table.column(place).combine_chunks()
        is_time = shape.kind(column) == "timestamp"
        arrays += split_moments(values, shape.arrow_type(column)) if is_time else [values]
    return pa.Table.from_arrays(arrays, schema=schema)
