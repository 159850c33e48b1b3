"""The tables that Lethe keeps inside a target: schema `lethe` on PostgreSQL, prefix `lethe_` elsewhere.

On MariaDB and MySQL they lie in the target's own database, never in one beside it: a backup of the database
then carries its ledger, and where the fence is does not depend on what a role may do.

Rules:
- They are created once, whoever comes first, under a lock of the target; nobody's tables are ever altered.
- `ensure_ledger` answers True only where all three tables are there and may be written.
"""

import os
from dataclasses import dataclass

from spark.targets.connection import Connection, sqlite_path
from spark.targets.errors import TargetReadOnly, TargetSchemaUnsupported
from spark.targets.files.mode_bits import may
from spark.targets.mysql_rights import may_run, refuses_writes

# Any constant will do; it is the same in every Lethe, so that two of them do not create at the same time.
CREATION_LOCK = 0x6C65746865  # "lethe"

_COLUMNS: dict[str, tuple[str, ...]] = {
    "unit_ledger": (
        "job_id text not null",
        "unit_id text not null",
        "step text not null",
        "attempt integer not null",
        "token bigint not null",
        "rows_affected bigint not null",
        "detail text not null",
        "committed_at {timestamp} not null default {now}",
        "primary key (job_id, unit_id)",
    ),
    "fence": ("resource text not null primary key", "token bigint not null", "owner text not null"),
    "archive_manifest": (
        "job_id text not null",
        "unit_id text not null",
        "table_name text not null",
        "attempt bigint not null",
        "path text not null",
        "rows bigint not null",
        "bytes bigint not null",
        "sha256 text not null",
        "primary key (job_id, unit_id)",
    ),
}
TABLES = tuple(_COLUMNS)


_MYSQL_COLUMNS: dict[str, tuple[str, ...]] = {
    "unit_ledger": (
        "job_id varchar(64) not null",
        "unit_id varchar(190) not null",
        "step varchar(64) not null",
        "attempt bigint not null",
        "token bigint not null",
        "rows_affected bigint not null",
        "detail longtext not null",
        "committed_at datetime(6) not null default (utc_timestamp(6))",
        "primary key (job_id, unit_id)",
    ),
    "fence": (
        "resource varchar(190) not null primary key",
        "token bigint not null",
        "owner varchar(190) not null",
    ),
    "archive_manifest": (
        "job_id varchar(64) not null",
        "unit_id varchar(190) not null",
        "table_name varchar(190) not null",
        "attempt bigint not null",
        "path text not null",
        "`rows` bigint not null",
        "`bytes` bigint not null",
        "sha256 varchar(64) not null",
        "primary key (job_id, unit_id)",
    ),
}
# Names are compared byte by byte, whatever the database's collation; without transactions it is no ledger.
_MYSQL_OPTIONS = "engine=InnoDB default character set utf8mb4 collate utf8mb4_bin row_format=dynamic"


@dataclass(frozen=True)
class _Found:
    """What is there: column names of each table, whether we may read and write all of them, and (MySQL)
    whether the role may, on a connection that writes.
    """

    columns: dict[str, set[str]]
    readable: bool
    writable: bool
    writable_by_role: bool = False


def ensure_ledger(conn: Connection) -> bool:
    """Create Lethe's tables where they are missing, in a transaction of their own.

    Returns: True: they are there and may be written. False: this role may not create or not write them; the
        target then has no ledger, and `advisory.hold` takes the place of the fence.
    Raises: TargetLockTimeout: somebody else is creating them and takes longer than the lock timeout.
        TargetSchemaUnsupported: a table of that name is there and is not Lethe's.
    """
    found = _look(conn)
    if len(found.columns) == len(TABLES):
        return found.writable
    if not _may_create(conn):
        return False
    try:
        if conn.dialect.name == "mysql":
            _create_mysql(conn)
        else:
            with conn.transaction():
                _create(conn)
    except TargetReadOnly:
        return False
    found = _look(conn)
    return len(found.columns) == len(TABLES) and found.writable


def has_ledger(conn: Connection) -> bool:
    """Whether the ledger is there and writable; creates nothing."""
    found = _look(conn)
    return len(found.columns) == len(TABLES) and found.writable


def shows_ledger(conn: Connection) -> bool:
    """Whether the ledger is there and may be read: the question of a connection that only looks."""
    found = _look(conn)
    return len(found.columns) == len(TABLES) and found.readable


def can_create_ledger(conn: Connection) -> bool:
    """Whether `ensure_ledger` would answer True; creates nothing."""
    found = _look(conn)
    return found.writable if len(found.columns) == len(TABLES) else _may_create(conn)


def _create(conn: Connection) -> None:
    postgresql = conn.dialect.name == "postgresql"
    if postgresql:
        # CREATE ... IF NOT EXISTS of two sessions at once fails with a unique violation.
        conn.execute("select pg_advisory_xact_lock(:key)", {"key": CREATION_LOCK})
        [(there,)] = conn.execute("select count(*) from pg_catalog.pg_namespace where nspname = 'lethe'")
        if not there:  # IF NOT EXISTS asks for the right even where the schema exists
            conn.execute("create schema lethe")
    there_now = _look(conn).columns
    words = {
        "timestamp": "timestamp with time zone" if postgresql else "text",
        "now": "clock_timestamp()" if postgresql else "(strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
    }
    for table, columns in _COLUMNS.items():
        if table not in there_now:
            definition = ", ".join(columns).format(**words)
            conn.execute(f"create table {conn.dialect.lethe_table(table)} ({definition})")


def _create_mysql(conn: Connection) -> None:
    # Each statement is a transaction of its own there; IF NOT EXISTS bears two that come at once.
    for table, columns in _MYSQL_COLUMNS.items():
        name = conn.dialect.lethe_table(table)
        conn.execute(f"create table if not exists {name} ({', '.join(columns)}) {_MYSQL_OPTIONS}")


def _look(conn: Connection) -> _Found:
    look = {"postgresql": _look_postgresql, "mysql": _look_mysql, "sqlite": _look_sqlite}
    found = look[conn.dialect.name](conn)
    for table, columns in found.columns.items():
        if lacking := _lacking(table, columns):
            missing = ", ".join(sorted(lacking))
            raise TargetSchemaUnsupported(
                f"{conn.dialect.lethe_table(table)} lacks {missing}: not Lethe's table"
            )
    return found


def _look_postgresql(conn: Connection) -> _Found:
    # The catalog, because looking at the tables themselves fails where the schema may not be used.
    rows = conn.execute(
        """
        select c.relname, a.attname,
               has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select'),
               has_table_privilege(c.oid, 'insert') and has_table_privilege(c.oid, 'update')
               and has_table_privilege(c.oid, 'delete') and not pg_is_in_recovery()
               and current_setting('transaction_read_only') = 'off'
        from pg_catalog.pg_class c
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        where n.nspname = 'lethe' and c.relkind in ('r', 'p') and c.relname = any(:tables)
        """,
        {"tables": list(TABLES)},
    )
    columns: dict[str, set[str]] = {}
    for table, column, *_ in rows:
        columns.setdefault(table, set()).add(column)
    readable = all(may_read for _, _, may_read, _ in rows)
    return _Found(columns, readable, readable and all(may_write for *_, may_write in rows))


def _look_mysql(conn: Connection) -> _Found:
    rows = conn.execute(
        "select table_name, column_name from information_schema.columns"
        " where table_schema = database() and table_name in :tables",
        {"tables": [f"lethe_{table}" for table in TABLES]},
    )
    columns: dict[str, set[str]] = {}
    for table, column in rows:
        columns.setdefault(str(table).lower().removeprefix("lethe_"), set()).add(str(column))
    if len(columns) < len(TABLES) or any(_lacking(table, names) for table, names in columns.items()):
        return _Found(columns, readable=False, writable=False)
    tables = [conn.dialect.lethe_table(table) for table in TABLES]
    readable = all(may_run(conn, f"select 1 from {table}") for table in tables)
    writes = [f"insert into {table} values ()" for table in tables]
    writes += [f"delete from {table} where 1 = 0" for table in tables]
    writes.append(f"update {conn.dialect.lethe_table('fence')} set token = 0 where 1 = 0")
    by_role = readable and all(may_run(conn, write) for write in writes)
    return _Found(columns, readable, by_role and not refuses_writes(conn), by_role)


def _lacking(table: str, columns: set[str]) -> set[str]:
    wanted = {line.split()[0] for line in _COLUMNS[table] if not line.startswith("primary key")}
    return wanted - columns


def _look_sqlite(conn: Connection) -> _Found:
    columns: dict[str, set[str]] = {}
    for table in TABLES:
        rows = conn.execute("select name from pragma_table_info(:name)", {"name": f"lethe_{table}"})
        if rows:
            columns[table] = {name for (name,) in rows}
    return _Found(columns, True, not _sqlite_refuses_writes(conn))


def may_keep_ledger(conn: Connection) -> bool:
    """MySQL: the same, but of the role alone: the connection may be one that only looks."""
    found = _look_mysql(conn)
    return found.writable_by_role if len(found.columns) == len(TABLES) else _may_create_mysql(conn)


def _may_create(conn: Connection) -> bool:
    if conn.dialect.name == "sqlite":
        return not _sqlite_refuses_writes(conn)
    if conn.dialect.name == "mysql":
        return not refuses_writes(conn) and _may_create_mysql(conn)
    [(allowed,)] = conn.execute(
        """
        select not pg_is_in_recovery() and current_setting('transaction_read_only') = 'off'
           and coalesce((select has_schema_privilege(oid, 'create') and has_schema_privilege(oid, 'usage')
                         from pg_catalog.pg_namespace where nspname = 'lethe'),
                        has_database_privilege(current_database(), 'create'))
        """
    )
    return bool(allowed)


def _may_create_mysql(conn: Connection) -> bool:
    there = _look_mysql(conn).columns
    missing = [conn.dialect.lethe_table(table) for table in TABLES if table not in there]
    return all(may_run(conn, f"create table {table} (job_id int primary key)") for table in missing)


def _sqlite_refuses_writes(conn: Connection) -> bool:
    """Whether the connection or the file is read-only; a journal has to be created beside the file."""
    path = os.path.realpath(sqlite_path(conn.target))
    return conn.read_only or not (may(path, os.W_OK) and may(os.path.dirname(path), os.W_OK))
