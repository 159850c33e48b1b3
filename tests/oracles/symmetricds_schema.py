"""The runtime tables of SymmetricDS 2.x and 3.x, as they are created on SQLite, PostgreSQL and MariaDB.

Columns and indexes are read from the reference databases under tests/data, so nothing is typed twice; where
those differ from what facts/symmetricds-purge section 1 says of 2.x, the facts win (tests/data/PROVENANCE.md
lists the differences).
"""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

Version = Literal["2.x", "3.x"]
VERSIONS: tuple[Version, ...] = ("2.x", "3.x")
Dialect = Literal["sqlite", "postgresql", "mariadb"]

DATA = Path(__file__).parents[1] / "data" / "symmetricds"
COLUMN = re.compile(r"^  (\w+) (\w+(?:\([\d,]+\))?)(.*?),?$")
INDEX = re.compile(r"^CREATE (UNIQUE )?INDEX sym_(\w+) on sym_(\w+) \((.*)\)$")
# Booleans of SymmetricDS are BOOLEANINT: smallint on PostgreSQL.
FLAG = re.compile(
    r"(_flag|_enabled|enabled|^is_\w+|^completed|^cancelled|^full_load|^processed|_ignore|big_lob)$"
)
SMALL = {"sql_code", "trigger_hist_id", "processing_order", "attempt_count", "table_hash", "trigger_row_hash"}

# sym_parameter is not in the reference databases.
PARAMETER_DDL = """
  external_id VARCHAR(255) not null,
  node_group_id VARCHAR(50) not null,
  param_key VARCHAR(80) not null,
  param_value TEXT,
  create_time TIMESTAMP,
  last_update_by VARCHAR(50),
  last_update_time TIMESTAMP not null,
  primary key (external_id, node_group_id, param_key)
"""


@dataclass(frozen=True)
class Column:
    """A column as the reference database declares it; `tail` is its default and constraint."""

    name: str
    type: str
    tail: str


@dataclass(frozen=True)
class Index:
    """An index; its name has no prefix."""

    name: str
    columns: tuple[str, ...]
    unique: bool


@dataclass(frozen=True)
class Table:
    """A table; its name has no prefix. `automatic` is the column that the database numbers by itself."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    indexes: tuple[Index, ...] = ()
    automatic: str | None = None

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names in the order of the declaration."""
        return tuple(column.name for column in self.columns)


def reference_database(version: Version) -> Path:
    """The reference SQLite file of a version."""
    return DATA / f"small_{version.replace('.', '')}.sqlite"


@functools.cache
def tables(version: Version) -> dict[str, Table]:
    """Every table of a layout by its name without prefix, sym_parameter included."""
    uri = f"{reference_database(version).as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        ddl = connection.execute(
            "select type, name, sql from sqlite_master where sql is not null and name glob 'sym_*'"
        ).fetchall()
    found = {name.removeprefix("sym_"): _table(name, sql) for kind, name, sql in ddl if kind == "table"}
    found["parameter"] = _table("sym_parameter", PARAMETER_DDL)
    for kind, _name, sql in ddl:
        if kind == "index":
            table, index = _index(sql)
            found[table] = replace(found[table], indexes=(*found[table].indexes, index))
    found["data"] = replace(found["data"], automatic="data_id")
    return _as_facts_say_of_2x(found) if version == "2.x" else found


def _table(name: str, sql: str) -> Table:
    matches = [COLUMN.match(line) for line in sql.splitlines() if not line.startswith("  primary key")]
    columns = tuple(Column(match[1], match[2], match[3]) for match in matches if match)
    key = re.search(r"primary key \((.*)\)", sql)
    assert columns
    assert key is not None
    return Table(name.removeprefix("sym_"), columns, tuple(key[1].split(", ")))


def _index(sql: str) -> tuple[str, Index]:
    match = INDEX.match(sql)
    assert match is not None
    return match[3], Index(match[2], tuple(match[4].split(", ")), match[1] is not None)


def _as_facts_say_of_2x(found: dict[str, Table]) -> dict[str, Table]:
    """Facts, section 1: batch_id alone is the key and numbers itself; no prerouting; plain channel index."""
    data = found["data"]
    kept = tuple(column for column in data.columns if column.name not in {"node_list", "is_prerouted"})
    plain = tuple(replace(index, unique=False) for index in data.indexes)
    batch = replace(found["outgoing_batch"], primary_key=("batch_id",), automatic="batch_id")
    return {**found, "data": replace(data, columns=kept, indexes=plain), "outgoing_batch": batch}


def quoted(name: str, dialect: Dialect) -> str:
    """A name between the quotes of a dialect."""
    return f"`{name}`" if dialect == "mariadb" else f'"{name}"'


def statements(
    version: Version, *, dialect: Dialect, prefix: str, schema: str | None, loose: bool = False
) -> list[str]:
    """The statements that create a whole layout.

    Args:
        version: the layout.
        dialect: of the database.
        prefix: of table and index names, `sym_` in most installations.
        schema: PostgreSQL schema, created where it is missing; None is the connection's own.
        loose: every column that is not part of a key may be NULL.
    """
    place = f"{quoted(schema, dialect)}." if schema else ""
    made = [f"create schema if not exists {quoted(schema, dialect)}"] if schema else []
    for table in tables(version).values():
        types = _TYPES[dialect](_loosened(table) if loose else table, version)
        body = ", ".join([*types, f"primary key ({', '.join(table.primary_key)})"])
        name = f"{place}{quoted(f'{prefix}{table.name}', dialect)}"
        made.append(f"create table {name} ({body})")
        for index in table.indexes:
            unique = "unique " if index.unique else ""
            own = quoted(f"{prefix}{index.name}", dialect)
            made.append(f"create {unique}index {own} on {name} ({', '.join(index.columns)})")
    return made


def _loosened(table: Table) -> Table:
    columns = [
        column
        if column.name in table.primary_key
        else replace(column, tail=column.tail.replace("not null", ""))
        for column in table.columns
    ]
    return replace(table, columns=tuple(columns))


def _sqlite_types(table: Table, _version: Version) -> list[str]:
    return [f"{column.name} {column.type}{column.tail}" for column in table.columns]


def _postgresql_types(table: Table, version: Version) -> list[str]:
    made = []
    for column in table.columns:
        kind = _postgresql_type(column, version)
        tail = " generated by default as identity" if column.name == table.automatic else column.tail
        made.append(f"{column.name} {kind}{tail}")
    return made


def _postgresql_type(column: Column, version: Version) -> str:
    if column.type != "INTEGER":
        return column.type.lower()
    if FLAG.search(column.name):
        return "smallint"
    if column.name in SMALL:
        return "integer"
    # Facts, section 1: ids were INTEGER in 2.x and are BIGINT in 3.x. The 2.x gap ends above every id in use.
    return "bigint" if version == "3.x" or not column.name.endswith("_id") else "integer"


def _mariadb_types(table: Table, version: Version) -> list[str]:
    """As MySqlDdlBuilder of symmetric-db maps them: LONGVARCHAR to MEDIUMTEXT, TIMESTAMP to DATETIME.

    In 2.x a DATETIME has whole seconds; today's builder allows up to six digits, so 3.x has them here.
    """
    named = {"text": "mediumtext", "timestamp": "datetime" if version == "2.x" else "datetime(6)"}
    made = []
    for column in table.columns:
        kind = _postgresql_type(column, version)
        tail = " not null auto_increment" if column.name == table.automatic else column.tail
        made.append(f"{column.name} {named.get(kind, kind)}{tail}")
    return made


_TYPES: dict[Dialect, Callable[[Table, Version], list[str]]] = {
    "sqlite": _sqlite_types,
    "postgresql": _postgresql_types,
    "mariadb": _mariadb_types,
}
