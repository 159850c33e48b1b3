"""The tables whose rows were captured, as the target has them today.

Only keys of types of which the captured text is the value itself are taken: numbers, texts, UUIDs, dates. A
text that no value of the type has is no key. Row security may hide a row that is there, and a delete would be
sent for it: a table that has it counts as not there.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final, Literal
from uuid import UUID

from spark.rows.sql import Sql
from spark.targets.connection import Connection
from spark.targets.target import mysql_arguments

Family = Literal["integer", "wide", "decimal", "text", "uuid", "date"]
Source = tuple[str | None, str | None, str]
"""Catalog, schema and table, as a trigger's history names them."""
INTEGER_MAX: Final = 2**63
_INTEGER = re.compile(r"-?\d{1,20}")
_MIDNIGHT = re.compile(r" 00:00:00(\.0+)?\Z")
_DECIMAL = re.compile(r"-?\d{1,200}(\.\d{1,200})?")
_POSTGRESQL: Final[Mapping[str, tuple[Family, str]]] = {
    "smallint": ("integer", "bigint"),
    "integer": ("integer", "bigint"),
    "bigint": ("integer", "bigint"),
    "numeric": ("decimal", "numeric"),
    "text": ("text", "text"),
    "character varying": ("text", "text"),
    "character": ("text", "bpchar"),
    "uuid": ("uuid", "uuid"),
    "date": ("date", "date"),
}
_MYSQL: Final[Mapping[str, Family]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), "wide"),
    "decimal": "decimal",
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), "text"),
    "uuid": "uuid",
    "date": "date",
}
_COLUMNS_OF_POSTGRESQL = """
    select a.attname::text, pg_catalog.format_type(a.atttypid, null),
        a.attgenerated <> '' or a.attidentity = 'a'
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where n.nspname = :schema and c.relname = :name and c.relkind in ('r', 'p')
        and has_schema_privilege(n.oid, 'USAGE') and has_table_privilege(c.oid, 'SELECT')
        and has_table_privilege(c.oid, 'UPDATE')
        and not pg_catalog.row_security_active(c.oid) and cast(:catalog as text) in (current_database(), '')
    order by a.attnum"""
_COLUMNS_OF_MYSQL = """
    select c.column_name, lower(c.data_type),
        c.extra like '%GENERATED%' or not find_in_set('update', c.privileges)
    from information_schema.columns c join information_schema.tables t
        on t.table_schema = c.table_schema and t.table_name = c.table_name and t.table_type = 'BASE TABLE'
    where c.table_schema = :catalog and c.table_name = :name and find_in_set('select', c.privileges)
    order by c.ordinal_position"""
_COLUMNS_OF_SQLITE = (
    "select name, lower(type), hidden <> 0 from pragma_table_xinfo(:name) where hidden <> 1 and exists"
    " (select 1 from sqlite_master where type = 'table' and name = :name) order by cid"
)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of a key; `cast`: what PostgreSQL's statements cast its value to."""

    quoted: str
    family: Family | None
    cast: str | None = None


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A captured table.

    Attributes:
        name: qualified and quoted.
        touched: a column that may be set, quoted: the first of the key where that is one.
    """

    name: str
    key: tuple[KeyColumn, ...]
    touched: str

    def values(self, texts: Sequence[str]) -> tuple[Any, ...] | None:
        """The values of a key as statements bind them, equal for equal keys; None: not of these types."""
        found = tuple(_value(column.family, text) for column, text in zip(self.key, texts, strict=True))
        return None if None in found else found

    def at(self, values: Sequence[Any], prefix: str = "k") -> Sql:
        """True for the row with a key."""
        marks = {f"{prefix}{place}": value for place, value in enumerate(values)}
        texts = [
            f"{column.quoted} = {f'cast(:{mark} as {column.cast})' if column.cast else f':{mark}'}"
            for column, mark in zip(self.key, marks, strict=True)
        ]
        return Sql(" and ".join(texts), marks)


def source_table(conn: Connection, source: Source, key: Sequence[str]) -> SourceTable | None:
    """A captured table with its key; None: it is not there for this account, or lacks a column of the key."""
    columns = _columns(conn, source)
    if not key or not set(key) <= set(columns):
        return None
    quote = conn.dialect.quote
    settable = [name for name in (*key, *columns) if not columns[name][1]]
    if not settable:
        return None
    return SourceTable(
        qualified(conn, source),
        tuple(KeyColumn(quote(name), *_family(conn, columns[name][0])) for name in key),
        quote(settable[0]),
    )


def _columns(conn: Connection, source: Source) -> dict[str, tuple[str, bool]]:
    """Name to type, and whether no statement may set it; empty: no such table."""
    catalog, schema, name = source
    texts = {"mysql": _COLUMNS_OF_MYSQL, "postgresql": _COLUMNS_OF_POSTGRESQL}
    bound = {"name": name, "catalog": catalog or "", "schema": schema or conn.target.schema or "public"}
    if conn.dialect.name == "sqlite":
        if (catalog or "main", schema or "main") != ("main", "main"):
            return {}
        bound = {"name": name}
    elif conn.dialect.name == "mysql":
        bound = {"name": name, "catalog": catalog or schema or _database(conn)}
    rows = conn.execute(texts.get(conn.dialect.name, _COLUMNS_OF_SQLITE), bound)
    return {str(column): (str(kind), bool(is_made)) for column, kind, is_made in rows}


def qualified(conn: Connection, source: Source) -> str:
    """A table as statements name it: a history of the same table may leave its place out."""
    catalog, schema, name = source
    if conn.dialect.name == "sqlite":
        return conn.dialect.qualify(None, name)
    if conn.dialect.name == "mysql":
        return conn.dialect.qualify(catalog or schema or _database(conn), name)
    return conn.dialect.qualify(schema or conn.target.schema, name)


def _database(conn: Connection) -> str:
    return str(mysql_arguments(conn.target)["database"])


def _family(conn: Connection, kind: str) -> tuple[Family | None, str | None]:
    if conn.dialect.name == "postgresql":
        return _POSTGRESQL.get(kind, (None, None))
    if conn.dialect.name == "mysql":
        return _MYSQL.get(kind), None
    return _sqlite_family(kind), None


def _sqlite_family(kind: str) -> Family | None:
    """By SQLite's own rules of affinity, in their order."""
    if "int" in kind:
        return "integer"
    if any(word in kind for word in ("char", "clob", "text")):
        return "text"
    # Of fractions it keeps a double, whose text is shorter than it.
    return "integer" if kind.startswith(("numeric", "decimal")) else None


def _value(family: Family | None, text: str) -> Any:
    """A captured text as its value; None: it is none of the family."""
    if family == "text":
        return None if "\0" in text else text
    if family in ("integer", "wide"):
        most = 2 * INTEGER_MAX if family == "wide" else INTEGER_MAX
        found = int(text) if _INTEGER.fullmatch(text) else None
        return found if found is not None and -INTEGER_MAX <= found < most else None
    if family == "decimal":
        return Decimal(text) if _DECIMAL.fullmatch(text) else None
    try:
        if family == "uuid":
            return str(UUID(text))
        # On PostgreSQL a date is captured as its midnight.
        return date.fromisoformat(_MIDNIGHT.sub("", text)).isoformat() if family == "date" else None
    except ValueError:
        return None
