"""What the catalog of a target says about the tables of a purge: names, columns, types, sizes, rights."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from spark.formats.symmetricds import (
    DATA,
    DATA_EVENT,
    DATA_GAP,
    INCOMING_BATCH,
    KNOWN_TABLES,
    NODE,
    OUTGOING_BATCH,
    PURGED_TABLES,
    REQUIRED_COLUMNS,
    KindName,
    Layout,
    detect_version,
)
from spark.purge.reading.catalog_mysql import (
    lacks_right,
    refuse_engines,
    refuse_server,
    select_columns,
    select_places,
    select_sizes,
)
from spark.purge.upkeep_rules import RULES, faults_of, rules_of, tables_of
from spark.targets.connection import Connection, sqlite_path
from spark.targets.errors import TargetSchemaUnsupported, TargetTablesElsewhere, TargetTablesMissing
from spark.targets.files.mode_bits import may
from spark.targets.ledger_schema import TABLES as LEDGER_TABLES
from spark.targets.ledger_schema import may_keep_ledger
from spark.targets.mysql_rights import server_is_read_only

# What a purge does to each table. UPDATE is both for the stranded step and for locking batch rows.
RIGHTS: dict[KindName, dict[str, tuple[str, ...]]] = {
    "OUTGOING": {
        DATA: ("SELECT", "DELETE"),
        DATA_EVENT: ("SELECT", "DELETE"),
        OUTGOING_BATCH: ("SELECT", "UPDATE", "DELETE"),
        NODE: ("SELECT",),
    },
    "INCOMING": {INCOMING_BATCH: ("SELECT", "DELETE")},
    "DATA_GAP": {DATA_GAP: ("SELECT", "DELETE")},
}
RIGHTS |= {
    kind: dict.fromkeys(tables_of(kind), ("SELECT",))
    | dict.fromkeys(PURGED_TABLES[kind], ("SELECT", "DELETE"))
    for kind in RULES
}
# FOR SHARE on the batches that a captured row is in, and their status where they are marked.
RIGHTS["CHANNELS"][OUTGOING_BATCH] = ("SELECT", "UPDATE")
ELSEWHERE_MAX = 5
_MAY_KEEP_LEDGER = """
    select case when n.oid is null then has_database_privilege(current_database(), 'CREATE')
        else has_schema_privilege(n.oid, 'USAGE') and t.writable
             and (t.tables = cardinality(:tables) or has_schema_privilege(n.oid, 'CREATE')) end
    from (select 1) always
    left join pg_catalog.pg_namespace n on n.nspname = 'lethe'
    cross join lateral (
        select count(*) as tables, coalesce(bool_and(
            has_table_privilege(c.oid, 'SELECT') and has_table_privilege(c.oid, 'INSERT')
            and has_table_privilege(c.oid, 'UPDATE') and has_table_privilege(c.oid, 'DELETE')), true)
            as writable
        from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relname = any(:tables)) t
"""


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `key` is its position in the primary key, 0 outside."""

    name: str
    type: str
    key: int


Catalog = dict[str, tuple[Column, ...]]


def read_catalog(conn: Connection, kind: KindName = "OUTGOING") -> Catalog:
    """The columns of every table of SymmetricDS that is there, by its name without prefix.

    Args:
        kind: the purge whose tables and columns must be there.
    Raises: TargetTablesMissing: a required table is not there; TargetTablesElsewhere: it is somewhere else;
        TargetSchemaUnsupported: a required column is not there.
    """
    wanted = tuple(dict.fromkeys((*KNOWN_TABLES, *tables_of(kind))))
    read = _all_columns(conn, wanted)
    found = {table: read[table] for table in wanted if read[table]}
    required = REQUIRED_COLUMNS.get(kind, {})
    missing = [f"{conn.target.table_prefix}{table}" for table in required if table not in found]
    if missing:
        hint = _hint(conn, missing)
        error = TargetTablesElsewhere if hint else TargetTablesMissing
        raise error(f"{', '.join(missing)} not found{hint}")
    for table, names in required.items():
        absent = set(names) - {column.name for column in found[table]}
        if absent:
            raise TargetSchemaUnsupported(
                f"{conn.target.table_prefix}{table} has no column {', '.join(sorted(absent))}"
            )
    if conn.dialect.name == "mysql":
        refuse_server(conn)
        checked = required or [table for table in tables_of(kind) if table in found]
        refuse_engines(conn, [f"{conn.target.table_prefix}{table}" for table in checked])
    if kind in RULES:
        _refuse_without_rules(conn, kind, found)
    return found


def _refuse_without_rules(conn: Connection, kind: KindName, found: Catalog) -> None:
    """A layout of a version whose tables nothing is known of."""
    prefix, layout = conn.target.table_prefix, layout_of(found)
    if rules_of(kind, layout, prefix=prefix):
        return
    faults = "; ".join(dict.fromkeys(faults_of(kind, layout, prefix=prefix).values()))
    missing = [f"{prefix}{table}" for table in PURGED_TABLES[kind] if table not in found]
    if len(missing) < len(PURGED_TABLES[kind]):
        raise TargetSchemaUnsupported(f"no purge {kind} of this version of SymmetricDS: {faults}")
    hint = _hint(conn, missing)
    error = TargetTablesElsewhere if hint else TargetTablesMissing
    raise error(f"no purge {kind} here, as in versions of SymmetricDS without these tables: {faults}{hint}")


def has_table(conn: Connection, table: str) -> bool:
    """Whether a table, given without prefix, is in the schema of the connection."""
    return bool(_all_columns(conn, [table])[table])


def layout_of(catalog: Catalog) -> Layout:
    """Tell version and peculiarities from the columns."""
    gap = [column.name for column in catalog.get(DATA_GAP, ())]
    batch_key = {column.name for column in catalog.get(OUTGOING_BATCH, ()) if column.key}
    return Layout(
        version=detect_version(tables=catalog, data_gap_columns=gap),
        tables=frozenset(catalog),
        columns=tuple((table, tuple(column.name for column in found)) for table, found in catalog.items()),
        common_batches="node_id" in batch_key,
        data_gap_has_status="status" in gap,
    )


def missing_rights(
    conn: Connection,
    kind: KindName = "OUTGOING",
    *,
    also_read: Sequence[str] = (),
    present: Collection[str] | None = None,
) -> tuple[tuple[str, str], ...]:
    """(table, right) pairs that the role lacks; on SQLite the file and its directory must be writable.

    Args:
        also_read: more tables, without prefix, that the purge has to look into.
        present: the tables that are there; None: all.
    """
    wanted = RIGHTS[kind] | dict.fromkeys(also_read, ("SELECT",))
    wanted = {table: rights for table, rights in wanted.items() if present is None or table in present}
    prefix = conn.target.table_prefix
    if conn.dialect.name == "sqlite":
        if _writable(sqlite_path(conn.target)):
            return ()
        return tuple(
            (f"{prefix}{table}", right)
            for table, rights in wanted.items()
            for right in rights
            if right != "SELECT"
        )
    missing = []
    for table, rights in wanted.items():
        name = conn.dialect.qualify(conn.target.schema, f"{prefix}{table}")
        missing += [(f"{prefix}{table}", right) for right in rights if not _has_right(conn, name, right)]
    return tuple(missing)


def table_sizes(
    conn: Connection, tables: Sequence[str] = PURGED_TABLES["OUTGOING"]
) -> dict[str, tuple[int | None, int | None]]:
    """Estimated rows and bytes (with indexes) of the purged tables; None where the target does not know."""
    prefix = conn.target.table_prefix
    sizes: dict[str, tuple[int | None, int | None]] = {}
    if conn.dialect.name == "mysql":
        return dict(select_sizes(conn, [f"{prefix}{table}" for table in tables]))
    for table in tables:
        name = conn.dialect.qualify(conn.target.schema, f"{prefix}{table}")
        if conn.dialect.name == "sqlite":
            [(rows,)] = conn.execute(f"select count(*) from {name}")
            sizes[f"{prefix}{table}"] = (int(rows), None)
            continue
        [(rows, size)] = conn.execute(
            "select c.reltuples::bigint, pg_catalog.pg_total_relation_size(c.oid)"
            " from pg_catalog.pg_class c where c.oid = cast(:name as regclass)",
            {"name": name},
        )
        # -1: never analysed.
        sizes[f"{prefix}{table}"] = (int(rows) if rows >= 0 else None, int(size))
    return sizes


def is_read_only(conn: Connection) -> bool:
    """A standby, a database that refuses writes by default, or a file without write permission."""
    if conn.dialect.name == "sqlite":
        return not _writable(sqlite_path(conn.target))
    if conn.dialect.name == "mysql":
        return server_is_read_only(conn)
    [(recovering, setting)] = conn.execute(
        "select pg_catalog.pg_is_in_recovery(), current_setting('default_transaction_read_only')"
    )
    return bool(recovering) or (setting == "on" and not conn.read_only)


def can_create_ledger(conn: Connection) -> bool:
    """Whether Lethe's own tables are there and writable, or may be made.

    Asked of the catalog alone: an inspection reads on a connection that may write nothing, and
    `ledger.can_create_ledger` answers for the connection it is given.
    """
    if is_read_only(conn):
        return False
    if conn.dialect.name == "sqlite":
        return True
    if conn.dialect.name == "mysql":
        return may_keep_ledger(conn)
    [(allowed,)] = conn.execute(_MAY_KEEP_LEDGER, {"tables": list(LEDGER_TABLES)})
    return bool(allowed)


def _all_columns(conn: Connection, tables: Sequence[str]) -> Catalog:
    """The columns of each table; none of one that is not there."""
    if conn.dialect.name != "mysql":
        return {table: _columns(conn, table) for table in tables}
    prefix = conn.target.table_prefix
    read = select_columns(conn, [f"{prefix}{table}" for table in tables])
    return {table: tuple(Column(*each) for each in read.get(f"{prefix}{table}", ())) for table in tables}


def _columns(conn: Connection, table: str) -> tuple[Column, ...]:
    parameters: dict[str, object] = {"name": f"{conn.target.table_prefix}{table}"}
    if conn.dialect.name == "sqlite":
        sql = "select name, lower(type), pk from pragma_table_info(:name) order by cid"
    else:
        parameters["schema"] = conn.target.schema or "public"
        sql = (
            "select a.attname, pg_catalog.format_type(a.atttypid, null),"
            " coalesce(array_position(i.indkey::int2[], a.attnum), -1) + 1"
            " from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace"
            " join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped"
            " left join pg_catalog.pg_index i on i.indrelid = c.oid and i.indisprimary"
            " where n.nspname = :schema and c.relname = :name and c.relkind in ('r', 'p') order by a.attnum"
        )
    return tuple(Column(str(name), str(kind), int(key)) for name, kind, key in conn.execute(sql, parameters))


def _has_right(conn: Connection, name: str, right: str) -> bool:
    if conn.dialect.name == "mysql":
        return not lacks_right(conn, name, right)
    # FOR SHARE asks for UPDATE on any column; the stranded step for UPDATE of `status`.
    question = (
        "select has_column_privilege(cast(:name as regclass), 'status', 'UPDATE')"
        if right == "UPDATE"
        else "select has_table_privilege(cast(:name as regclass), :right)"
    )
    schema = conn.execute("select has_schema_privilege(:s, 'USAGE')", {"s": conn.target.schema or "public"})
    if not schema[0][0]:
        return False
    return bool(conn.execute(question, {"name": name, "right": right})[0][0])


def _writable(path: str) -> bool:
    # SQLite makes its journal beside the file.
    return may(path, os.W_OK) and may(os.path.dirname(path), os.W_OK)


def _hint(conn: Connection, missing: list[str]) -> str:
    """Where tables of that name, or of that name with another prefix, exist."""
    suffix = missing[0].removeprefix(conn.target.table_prefix)
    rows: Sequence[tuple[str | None, str]]
    if conn.dialect.name == "mysql":
        rows = select_places(conn, suffix)
    elif conn.dialect.name == "sqlite":
        rows = conn.execute(
            "select null, name from sqlite_schema where type = 'table'"
            " and (lower(name) = :suffix or lower(name) like :pattern escape '~') order by name",
            {"suffix": suffix, "pattern": f"%~_{suffix}"},
        )
    else:
        rows = conn.execute(
            "select n.nspname, c.relname from pg_catalog.pg_class c"
            " join pg_catalog.pg_namespace n on n.oid = c.relnamespace"
            " where c.relkind in ('r', 'p') and n.nspname not in ('pg_catalog', 'information_schema')"
            " and (lower(c.relname) = :suffix or lower(c.relname) like :pattern escape '~') order by 1, 2",
            {"suffix": suffix, "pattern": f"%~_{suffix}"},
        )
    places = [f"{schema}.{name}" if schema else str(name) for schema, name in rows[:ELSEWHERE_MAX]]
    return f"; there is {', '.join(places)}: check schema and table_prefix" if places else ""


def columns_of(conn: Connection, table: str) -> tuple[str, ...]:
    """The columns of one table, named without prefix; none where it is not there."""
    return tuple(column.name for column in _all_columns(conn, [table])[table])
