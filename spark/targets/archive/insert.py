"""How archived rows enter a table: a new one in a file, one beside the live one, or the live one itself."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from spark.targets.archive import mysql as archive_mysql
from spark.targets.archive.columns import Column, TableShape, quoted_columns
from spark.targets.archive.postgresql import copy_lines, encoding_option
from spark.targets.archive.sqlite import insert_rows
from spark.targets.connection import Connection
from spark.targets.errors import RestoreConflict, TargetSchemaUnsupported

# Types come out of a file: nothing but the words, numbers and quotes that a type is made of.
_TYPE = re.compile(r'[A-Za-z0-9_ ."]*(\([0-9, -]*\))?[A-Za-z0-9_ ."\[\]]*')
_DRAFT = "pg_temp.lethe_restore"


@dataclass(frozen=True, slots=True)
class Inserted:
    """Rows that were written, and rows that were there already."""

    rows: int
    skipped: int = 0


def add_file_table(conn: Connection, shape: TableShape) -> None:
    """Create the table of an archive in a SQLite file, or add the columns that it lacks there.

    Raises: RestoreConflict: another table of the archive has the same name there.
    """
    others = conn.execute(
        "select name from sqlite_schema where type = 'table' and name = :table collate nocase"
        " and name <> :table",
        {"table": shape.table},
    )
    if others:
        raise RestoreConflict(
            f"{others[0][0]} and {shape.table} are one name in SQLite: restore into a schema of the target"
        )
    there = {
        name for (name,) in conn.execute("select name from pragma_table_info(:table)", {"table": shape.table})
    }
    if not there:
        columns = [
            f"{conn.dialect.quote(column.name)} {_file_type(shape, column)}" for column in shape.columns
        ]
        columns += _declared_key(conn, shape)
        conn.execute(f"create table {conn.dialect.quote(shape.table)} ({', '.join(columns)})")
        return
    # The table was altered between two units.
    for column in shape.columns:
        if column.name not in there:
            conn.execute(
                f"alter table {conn.dialect.quote(shape.table)} "
                f"add column {conn.dialect.quote(column.name)} {_file_type(shape, column)}"
            )


def create_like(conn: Connection, schema: str, shape: TableShape) -> None:
    """Create a table like the live one; like the archived one where that is gone."""
    name = conn.dialect.qualify(schema, shape.table)
    live = conn.dialect.qualify(conn.target.schema, shape.table)
    if conn.dialect.name == "mysql":
        _create_like_mysql(conn, name, live, shape)
        return
    if conn.execute("select 1 where to_regclass(:name) is not null", {"name": name}):
        return
    if conn.execute("select 1 where to_regclass(:name) is not null", {"name": live}):
        conn.execute(f"create table {name} (like {live} including indexes including generated)")
        return
    conn.execute(f"create table {name} ({_declared(conn, shape)})")


def _create_like_mysql(conn: Connection, name: str, live: str, shape: TableShape) -> None:
    there = conn.execute(
        "select 1 from information_schema.tables where table_schema = database() and table_name = :table",
        {"table": shape.table},
    )
    if there:
        conn.execute(f"create table if not exists {name} like {live}")
        return
    conn.execute(f"create table if not exists {name} ({_declared(conn, shape)}) engine=InnoDB")


def _declared(conn: Connection, shape: TableShape) -> str:
    """Columns and key of a table that is gone.

    Raises: TargetSchemaUnsupported: without its generated columns it has no key.
    """
    if not shape.key_is_whole:
        raise TargetSchemaUnsupported(
            f"the key of {shape.table} had a generated column, and the table is gone: restore into a file"
        )
    columns = [f"{conn.dialect.quote(column.name)} {_safe_type(column)}" for column in shape.columns]
    return ", ".join([*columns, *_declared_key(conn, shape)])


def insert_missing(
    conn: Connection, schema: str | None, shape: TableShape, rows: Iterable[tuple[object, ...]]
) -> Inserted:
    """Not SQLite: insert the rows whose key is free; those that are there must be the same.

    Raises: RestoreConflict: another row stands under the key of one of them.
    """
    name = conn.dialect.qualify(schema, shape.table)
    names = [column.name for column in shape.columns]
    if not shape.primary_key:
        raise TargetSchemaUnsupported(f"{shape.table} has no primary key: restore into a file")
    if conn.dialect.name == "mysql":
        return Inserted(*archive_mysql.insert_missing(conn, name, shape, rows))
    columns = quoted_columns(conn, names)
    # Without the other columns: a generated one may be NOT NULL.
    conn.execute(
        f"create temp table lethe_restore on commit drop as select {columns} from {name} with no data"
    )
    came = _copy(conn, _DRAFT, shape, names, rows)
    # COPY writes what it is given into an identity column; an INSERT has to say so.
    written = conn.execute_count(
        f"insert into {name} ({columns}) overriding system value select {columns} from {_DRAFT}"
        " on conflict do nothing"
    )
    same_key = " and ".join(
        f"s.{column} = d.{column}" for column in map(conn.dialect.quote, shape.primary_key)
    )
    # As text, because some types (json, xml, point) have no equality.
    same_row = " and ".join(
        f"s.{column}::text is not distinct from d.{column}::text" for column in map(conn.dialect.quote, names)
    )
    [(others,)] = conn.execute(
        f"select count(*) from {_DRAFT} d where not exists "
        f"(select 1 from {name} s where {same_key} and {same_row})"
    )
    if others:
        raise RestoreConflict(f"{others} keys of {name} are taken by other rows")
    return Inserted(written, came - written)


def insert_live(
    conn: Connection, live: TableShape, shape: TableShape, rows: Iterable[tuple[object, ...]]
) -> Inserted:
    """Insert all rows, or none.

    Raises: TargetRowConflict: a key is taken.
    """
    name = conn.dialect.qualify(conn.target.schema, shape.table)
    names = [column.name for column in shape.columns]
    missing = set(names) - {column.name for column in live.columns}
    if missing:
        raise TargetSchemaUnsupported(f"{shape.table} has no column {', '.join(sorted(missing))} any more")
    if conn.dialect.name == "postgresql":
        return Inserted(_copy(conn, name, shape, names, rows))
    if conn.dialect.name == "mysql":
        return Inserted(archive_mysql.insert_rows(conn, name, shape, rows))
    came, written = insert_rows(conn, name, names, rows)
    assert came == written, "a plain INSERT writes or fails"
    return Inserted(written)


def insert_again(conn: Connection, shape: TableShape, rows: Iterable[tuple[object, ...]]) -> Inserted:
    """Insert what has gone since an earlier restore of the same rows; what is still there stays.

    Raises: RestoreConflict: another row stands under the key of one of them.
    """
    if conn.dialect.name == "sqlite":
        return _insert_again_sqlite(conn, shape, rows)
    return insert_missing(conn, conn.target.schema, shape, rows)


def _insert_again_sqlite(conn: Connection, shape: TableShape, rows: Iterable[tuple[object, ...]]) -> Inserted:
    """OR IGNORE leaves out what any constraint refuses: whether all rows stand there is looked at."""
    name, names = conn.dialect.qualify(conn.target.schema, shape.table), [each.name for each in shape.columns]
    columns = quoted_columns(conn, names)
    conn.execute(f"create temp table lethe_restore as select {columns} from {name} where 1 = 0")
    came, _ = insert_rows(conn, "temp.lethe_restore", names, rows)
    written = conn.execute_count(
        f"insert or ignore into {name} ({columns}) select {columns} from temp.lethe_restore"
    )
    same_row = " and ".join(f"s.{column} is d.{column}" for column in map(conn.dialect.quote, names))
    [(others,)] = conn.execute(
        "select count(*) from temp.lethe_restore d"
        f" where not exists (select 1 from {name} s where {same_row})"
    )
    if others:
        raise RestoreConflict(
            f"{others} rows of {name} cannot come back: other rows stand under their keys, or a constraint"
            " refuses them. Restore into a file and compare"
        )
    conn.execute("drop table temp.lethe_restore")
    return Inserted(written, came - written)


def _declared_key(conn: Connection, shape: TableShape) -> list[str]:
    if not shape.primary_key or not shape.key_is_whole:
        return []
    return [f"primary key ({quoted_columns(conn, shape.primary_key)})"]


def _copy(
    conn: Connection, name: str, shape: TableShape, names: list[str], rows: Iterable[tuple[object, ...]]
) -> int:
    columns = quoted_columns(conn, names)
    sql = f"copy {name} ({columns}) from stdin (format text{encoding_option(shape)})"
    return conn.copy_in(sql, copy_lines(rows))


def _file_type(shape: TableShape, column: Column) -> str:
    """A type whose affinity stores what was archived unchanged."""
    if shape.dialect == "sqlite":
        return _safe_type(column)
    kind = shape.kind(column)
    if pa.types.is_uint64(shape.arrow_type(column)):
        return "text"
    return {"integer": "integer", "bytes": "blob"}.get(kind, "text")


def _safe_type(column: Column) -> str:
    if not _TYPE.fullmatch(column.source_type):
        raise TargetSchemaUnsupported(f"type {column.source_type!r} of {column.name} cannot be declared")
    return column.source_type
