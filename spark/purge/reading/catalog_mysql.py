"""What MariaDB and MySQL say about the tables of a purge, and what of them Lethe refuses."""

import re
from collections.abc import Iterable, Mapping, Sequence

from spark.targets.connection import Connection
from spark.targets.errors import TargetSchemaUnsupported
from spark.targets.mysql_rights import may_run

_PROBES = {
    "SELECT": "select 1 from {table}",
    "DELETE": "delete from {table} where 1 = 0",
    "UPDATE": "update {table} set status = status where 1 = 0",
}
SYSTEM_SCHEMAS = ("information_schema", "mysql", "performance_schema", "sys")


def select_columns(conn: Connection, tables: Sequence[str]) -> Mapping[str, list[tuple[str, str, int]]]:
    """Name, type in one word, and place in the primary key (0: outside) of each column, by base table.

    Each view of information_schema is asked once and alone: of a join it opens every table of the database.
    """
    wanted = {"tables": list(tables)}
    of_own = "where table_schema = database() and table_name in :tables"
    rows = conn.execute(
        f"select table_name, column_name, data_type from information_schema.columns {of_own}"
        " order by table_name, ordinal_position",
        wanted,
    )
    kinds = conn.execute(
        f"select table_name from information_schema.tables {of_own} and table_type = 'BASE TABLE'", wanted
    )
    keys = conn.execute(
        "select table_name, column_name, seq_in_index from information_schema.statistics"
        f" {of_own} and index_name = 'PRIMARY'",
        wanted,
    )
    base = {str(table) for (table,) in kinds}
    place = {(str(table), str(name)): int(number) for table, name, number in keys}
    found: dict[str, list[tuple[str, str, int]]] = {}
    for table, name, kind in rows:
        if table in base:
            key = place.get((str(table), str(name)), 0)
            found.setdefault(_asked_for(str(table), tables), []).append((str(name), str(kind).lower(), key))
    return found


def _asked_for(table: str, tables: Sequence[str]) -> str:
    """The name by which a table was asked for: the server may compare names without regard to case."""
    return next(
        (each for each in (table, *tables) if each in tables and each.lower() == table.lower()), table
    )


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


def select_sizes(conn: Connection, tables: Sequence[str]) -> Mapping[str, tuple[int | None, int | None]]:
    """Rows as estimated, and bytes with indexes, by table; a table that is not there has neither."""
    rows = conn.execute(
        "select table_name, table_rows, data_length + index_length from information_schema.tables"
        " where table_schema = database() and table_name in :tables",
        {"tables": list(tables)},
    )
    found: dict[str, tuple[int | None, int | None]] = dict.fromkeys(tables, (None, None))
    for table, count, size in rows:
        name = _asked_for(str(table), tables)
        found[name] = (None if count is None else int(count), None if size is None else int(size))
    return found


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
