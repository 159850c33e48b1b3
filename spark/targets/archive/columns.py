"""How the columns of a table stand in an archive file, so that every value can be brought back exactly.

A source column becomes one typed Arrow column that any reader understands. A value that does not fit its type
stands in a second column, `<column>#exact`, and is null in the first; it exists where that can happen:

| source | column | `#exact` |
|---|---|---|
| PostgreSQL smallint, integer, bigint | int16, int32, int64 | - |
| PostgreSQL timestamp, timestamptz | timestamp[us], [us, UTC] | string: infinity, BC, years above 9999 |
| PostgreSQL, any other type | string, as the server writes it (binary in a SQL_ASCII database) | - |
| MySQL tinyint to bigint, unsigned too | int8 to uint64 | - |
| MySQL datetime, timestamp | timestamp[us], [us, UTC] | string: dates that are none |
| MySQL, any other type | string, or binary for binary types, as the server writes it | - |
| SQLite, by the column's affinity | int64, double, string or binary | struct of the four storage classes |

The file's metadata keeps dialect, table, primary key, encoding and the identity of the unit; each field's
metadata keeps the source type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from spark.formats.arrow import pa
from spark.targets.connection import Connection, DialectName
from spark.targets.errors import ArchiveCorrupt, TargetTablesMissing

FORMAT = "1"
EXACT_SUFFIX = "#exact"
Kind = Literal["integer", "timestamp", "text", "bytes", "sqlite"]

# Text in #exact.text are the bytes of a text that is no valid text in the database's encoding.
_STORAGE_CLASSES: Final = (("integer", "int64"), ("real", "float64"), ("text", "binary"), ("blob", "binary"))
_INTEGERS: Final = {"smallint": "int16", "integer": "int32", "bigint": "int64"}
_TIMESTAMP = re.compile(r"timestamp(\(\d\))? (?P<zone>with|without) time zone")
_MYSQL_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "integer": 32, "bigint": 64}
_MYSQL_BINARY = re.compile(
    r"(tiny|medium|long)?blob|(var)?binary|bit|geometry|point|linestring|polygon|multi.*"
)
_AFFINITY_TYPES: Final = {"INTEGER": "int64", "REAL": "float64", "TEXT": "string", "BLOB": "binary"}


def storage_classes() -> pa.DataType:
    """The type of `#exact` of a value of SQLite."""
    return pa.struct([(name, pa.type_for_alias(alias)) for name, alias in _STORAGE_CLASSES])


@dataclass(frozen=True, slots=True)
class Column:
    """One source column: its name and its type as the source declares it."""

    name: str
    source_type: str


@dataclass(frozen=True, slots=True)
class TableShape:
    """What has to be known of a table to write its rows and to bring them back.

    Attributes:
        primary_key: the columns of it that are archived.
        key_is_whole: these are all: no two rows are alike in them. A generated column is not archived.
    """

    dialect: DialectName
    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    encoding: str
    key_is_whole: bool = True

    def kind(self, column: Column) -> Kind:
        if self.dialect == "sqlite":
            return "sqlite"
        if self.dialect == "mysql":
            return _mysql_kind(column)
        if column.source_type in _INTEGERS:
            return "integer"
        if _TIMESTAMP.fullmatch(column.source_type):
            return "timestamp"
        return "bytes" if self.encoding == "SQL_ASCII" else "text"

    def arrow_type(self, column: Column) -> Any:
        kind = self.kind(column)
        if kind == "sqlite":
            return pa.type_for_alias(_AFFINITY_TYPES[main_class(column.source_type)])
        if kind == "integer":
            return (
                _mysql_integer(column)
                if self.dialect == "mysql"
                else pa.type_for_alias(_INTEGERS[column.source_type])
            )
        if kind == "timestamp":
            return pa.timestamp("us", tz="UTC" if has_zone(column) else None)
        return pa.binary() if kind == "bytes" else pa.string()

    def schema(self, origin: Mapping[str, str]) -> Any:
        """The Arrow schema; `origin` (job, unit, token) goes into its metadata."""
        fields = []
        for column in self.columns:
            fields.append(
                pa.field(
                    column.name, self.arrow_type(column), metadata={"lethe.source_type": column.source_type}
                )
            )
            exact = {"timestamp": pa.string(), "sqlite": storage_classes()}.get(self.kind(column))
            if exact is not None:
                fields.append(
                    pa.field(column.name + EXACT_SUFFIX, exact, metadata={"lethe.exact_of": column.name})
                )
        metadata = {
            "lethe.format": FORMAT,
            "lethe.dialect": self.dialect,
            "lethe.table": self.table,
            "lethe.primary_key": json.dumps(self.primary_key),
            "lethe.key_is_whole": json.dumps(self.key_is_whole),
            "lethe.encoding": self.encoding,
        }
        return pa.schema(fields, metadata=metadata | {f"lethe.{key}": value for key, value in origin.items()})


def has_zone(column: Column) -> bool:
    """Whether a timestamp column counts instants (`with time zone`; TIMESTAMP of MySQL)."""
    found = _TIMESTAMP.fullmatch(column.source_type)
    if found is None:
        return mysql_word(column) == "timestamp"
    return found["zone"] == "with"


def mysql_word(column: Column) -> str:
    """The type of a MySQL column without length and attributes."""
    found = re.match(r"[a-z]+", column.source_type)
    return found.group() if found else ""


def _mysql_kind(column: Column) -> Kind:
    word = mysql_word(column)
    if word in _MYSQL_INTEGERS:
        return "integer"
    if word in ("datetime", "timestamp"):
        return "timestamp"
    return "bytes" if _MYSQL_BINARY.fullmatch(word) else "text"


def _mysql_integer(column: Column) -> Any:
    bits = _MYSQL_INTEGERS[mysql_word(column)]
    sign = "u" if "unsigned" in column.source_type else ""
    return pa.type_for_alias(f"{sign}int{bits}")


def main_class(declared: str) -> str:
    """The storage class that a SQLite column mostly holds: its affinity; text for NUMERIC dates and times."""
    found = affinity(declared)
    if found != "NUMERIC":
        return found
    return "TEXT" if any(word in declared.upper() for word in ("DATE", "TIME")) else "INTEGER"


def affinity(declared: str) -> str:
    """SQLite's rules for the affinity of a declared type (datatype3.html, 3.1)."""
    upper = declared.upper()
    if "INT" in upper:
        return "INTEGER"
    if any(word in upper for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in upper or not upper:
        return "BLOB"
    return "REAL" if any(word in upper for word in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def describe_table(conn: Connection, table: str) -> TableShape:
    """Read the shape of a table of the target's schema.

    Raises: TargetTablesMissing: it is not there.
    """
    describe = {"postgresql": _describe_postgresql, "mysql": _describe_mysql, "sqlite": _describe_sqlite}
    shape = describe[conn.dialect.name](conn, table)
    if not shape.columns:
        raise TargetTablesMissing(f"there is no table {conn.dialect.qualify(conn.target.schema, table)}")
    return shape


def shape_of_schema(schema: Any, *, path: str) -> TableShape:
    """The shape that an archive file tells of itself.

    Raises: ArchiveCorrupt: the file is Parquet, but not one of ours.
    """
    metadata = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    if metadata.get("lethe.format") != FORMAT:
        raise ArchiveCorrupt(f"{path}: not an archive file of format {FORMAT}")
    dialects: dict[str, DialectName] = {"sqlite": "sqlite", "mysql": "mysql", "postgresql": "postgresql"}
    dialect = dialects.get(metadata["lethe.dialect"])
    if dialect is None:
        raise ArchiveCorrupt(f"{path}: dialect {metadata['lethe.dialect']!r} is unknown")
    columns = tuple(
        Column(field.name, field.metadata[b"lethe.source_type"].decode())
        for field in schema
        if b"lethe.source_type" in (field.metadata or {})
    )
    return TableShape(
        dialect,
        metadata["lethe.table"],
        columns,
        tuple(json.loads(metadata["lethe.primary_key"])),
        metadata["lethe.encoding"],
        json.loads(metadata.get("lethe.key_is_whole", "true")),
    )


def _describe_postgresql(conn: Connection, table: str) -> TableShape:
    rows = conn.execute(
        """
        select a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
               k.position, getdatabaseencoding(), a.attgenerated = ''
        from pg_catalog.pg_class c
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        left join lateral (
            select u.position
            from pg_catalog.pg_index i, unnest(i.indkey) with ordinality u (attnum, position)
            where i.indrelid = c.oid and i.indisprimary
              and u.attnum = a.attnum and u.position <= i.indnkeyatts
        ) k on true
        where n.nspname = :schema and c.relname = :table and c.relkind in ('r', 'p')
        order by a.attnum
        """,
        {"schema": conn.target.schema or "public", "table": table},
    )
    encoding = rows[0][3] if rows else ""
    described = [(name, declared, place, is_kept) for name, declared, place, _, is_kept in rows]
    return _shape("postgresql", table, described, encoding=encoding)


def _describe_mysql(conn: Connection, table: str) -> TableShape:
    rows = conn.execute(
        "select c.column_name, c.column_type, k.seq_in_index, coalesce(c.generation_expression, '') = ''"
        " from information_schema.columns c"
        " left join information_schema.statistics k on k.table_schema = c.table_schema"
        " and k.table_name = c.table_name and k.column_name = c.column_name and k.index_name = 'PRIMARY'"
        " where c.table_schema = database() and c.table_name = :table order by c.ordinal_position",
        {"table": table},
    )
    described = [(str(name), str(declared).lower(), place, kept) for name, declared, place, kept in rows]
    return _shape("mysql", table, described, encoding="utf8mb4")


def _shape(
    dialect: DialectName, table: str, described: Sequence[tuple[str, str, Any, Any]], *, encoding: str
) -> TableShape:
    """Of name, type, place in the primary key, and whether a column is archived.

    A generated column is computed again when the others come back.
    """
    kept = [(name, declared, place) for name, declared, place, is_kept in described if is_kept]
    key = sorted((place, name) for name, _, place in kept if place is not None)
    return TableShape(
        dialect,
        table,
        tuple(Column(name, declared) for name, declared, _ in kept),
        tuple(name for _, name in key),
        encoding,
        key_is_whole=len(key) == sum(place is not None for _, _, place, _ in described),
    )


def _describe_sqlite(conn: Connection, table: str) -> TableShape:
    # Hidden 2 and 3 are generated columns: computed again from the others when these come back.
    rows = conn.execute(
        "select name, type, pk from pragma_table_xinfo(:table) where hidden = 0 order by cid",
        {"table": table},
    )
    [(encoding,)] = conn.execute("pragma encoding")
    key = sorted((position, name) for name, _, position in rows if position)
    return TableShape(
        "sqlite",
        table,
        tuple(Column(name, declared) for name, declared, _ in rows),
        tuple(name for _, name in key),
        encoding,
    )


def quoted_columns(conn: Connection, names: Sequence[str], *, alias: str | None = None) -> str:
    """A column list for a statement."""
    prefix = f"{alias}." if alias else ""
    return ", ".join(prefix + conn.dialect.quote(name) for name in names)
