"""What MariaDB and MySQL say about the tables of a purge, and what of them Lethe refuses."""

import re
from collections.abc import Iterable

from spark.targets.connection import Connection
from spark.targets.errors import TargetSchemaUnsupported
from spark.targets.mysql_rights import may_run

_PROBES = {
    "SELECT": "select 1 from {table}",
    "DELETE": "delete from {table} where 1 = 0",
    "UPDATE": "update {table} set status = status where 1 = 0",
}
SYSTEM_SCHEMAS = ("information_schema", "mysql", "performance_schema", "sys")


def select_columns(conn: Connection, table: str) -> list[tuple[str, str, int]]:
    """Name, type in one word, and place in the primary key (0: outside) of each column of a base table."""
    rows = conn.execute(
        "select c.column_name, c.data_type, coalesce(k.seq_in_index, 0) from information_schema.columns c"
        " join information_schema.tables t"
        " on t.table_schema = c.table_schema and t.table_name = c.table_name and t.table_type = 'BASE TABLE'"
        " left join information_schema.statistics k on k.table_schema = c.table_schema"
        " and k.table_name = c.table_name and k.column_name = c.column_name and k.index_name = 'PRIMARY'"
        " where c.table_schema = database() and c.table_name = :table order by c.ordinal_position",
        {"table": table},
    )
    return [(str(name), str(kind).lower(), int(key)) for name, kind, key in rows]


def refuse_engines(conn: Connection, tables: Iterable[str]) -> None:
    """Raise TargetSchemaUnsupported for a table without transactions: nothing that Lethe promises holds."""
    rows = conn.execute(
        "select table_name, engine from information_schema.tables"
        " where table_schema = database() and table_name in :tables order by table_name",
        {"tables": list(tables)},
    )
    others = [f"{table} is {engine}" for table, engine in rows if str(engine).lower() != "innodb"]
    if others:
        raise TargetSchemaUnsupported(f"{', '.join(others)}: only InnoDB has the transactions of a purge")


def refuse_server(conn: Connection) -> None:
    """Raise TargetSchemaUnsupported for a server on which row locks do not hold, or no row can be deleted."""
    rows = conn.execute(
        "show variables where variable_name in"
        " ('log_bin', 'binlog_format', 'wsrep_on', 'group_replication_single_primary_mode')"
    )
    known = {str(name).lower(): str(value).upper() for name, value in rows}
    if known.get("log_bin") == "ON" and known.get("binlog_format") == "STATEMENT":
        raise TargetSchemaUnsupported(
            "binlog_format is STATEMENT: InnoDB refuses to write at READ COMMITTED; use MIXED or ROW"
        )
    if known.get("wsrep_on") == "ON" or known.get("group_replication_single_primary_mode") == "OFF":
        raise TargetSchemaUnsupported(
            "a cluster with several writers: row locks do not reach the other nodes, a resend would be lost"
        )


def lacks_right(conn: Connection, name: str, right: str) -> bool:
    """Whether a right on a quoted table is missing."""
    return not may_run(conn, _PROBES[right].format(table=name))


def select_size(conn: Connection, table: str) -> tuple[int | None, int | None]:
    """Rows as estimated, and bytes with indexes."""
    rows = conn.execute(
        "select table_rows, data_length + index_length from information_schema.tables"
        " where table_schema = database() and table_name = :table",
        {"table": table},
    )
    [(count, size)] = rows or [(None, None)]
    return None if count is None else int(count), None if size is None else int(size)


def select_places(conn: Connection, suffix: str) -> list[tuple[str, str]]:
    """Tables that end in the name of a missing one: of the own database, else of all."""
    rows = conn.execute(
        "select table_schema, table_name, table_schema = database() from information_schema.tables"
        " where table_type = 'BASE TABLE' and table_schema not in :system"
        " and (lower(table_name) = :suffix or lower(table_name) like :pattern escape '~') order by 1, 2",
        {"suffix": suffix, "pattern": f"%~_{suffix}", "system": list(SYSTEM_SCHEMAS)},
    )
    own = [row for row in rows if row[2]]
    return [(str(schema), str(table)) for schema, table, _ in own or rows]


def running_deletes(conn: Connection) -> tuple[str, ...]:
    """Deletes of captured rows that are not Lethe's; without PROCESS only those of the own role are seen.

    Lethe's own begin with `delete d from`.
    """
    tables = rf"`?{re.escape(conn.target.table_prefix)}(data|data_event|outgoing_batch)\b"
    pattern = re.compile(rf"\s*delete\s+from\s+(`?\w+`?\.)?{tables}", re.IGNORECASE)
    [(database, own)] = conn.execute("select database(), connection_id()")
    found = []
    for pid, user, _host, name, _command, _time, _state, text, *_ in conn.execute("show full processlist"):
        if name == database and pid != own and text and pattern.match(str(text)):
            found.append(f"connection {pid} ({user}) is deleting captured rows")
    return tuple(found)
