"""The tables of a replica at its target: which are there, and how they are made."""

from collections.abc import Collection
from typing import Final

from spark.formats.replica import (
    ADDED_LATER,
    COLUMNS,
    COLUMNS_LATER,
    LACKING_BEFORE,
    LAYOUT_VERSION,
    TABLES,
    ReplicaTables,
    column_statements,
    create_statements,
    tables_of,
)
from spark.replication.errors import LayoutUnknown, ReplicaMissing
from spark.replication.records import ReplicaStatus
from spark.targets.connection import Connection
from spark.targets.errors import TargetTablesMissing

# Any constant will do; it is the same in every Lethe, so that two of them do not create at the same time.
_CREATION_LOCK: Final = 0x6C65746865  # "lethe"


def tables_there(conn: Connection) -> set[str]:
    """Which of the layout's tables are there; nothing is created.

    Raises: LayoutUnknown: one of that name has other columns: it is not ours.
    """
    return set(_columns_there(conn))


def is_layout_there(conn: Connection) -> bool:
    """Whether there is a replica, of whatever version.

    Raises: LayoutUnknown: some of its tables are missing, or not ours.
    """
    there = tables_there(conn)
    lacking = set(TABLES) - there
    if there and lacking not in LACKING_BEFORE:
        names = ", ".join(sorted(lacking))
        raise LayoutUnknown(f"some tables of a replica are there, but not: {names}")
    return bool(there)


def is_current(conn: Connection) -> bool:
    """Whether a replica that is there has everything that this version keeps.

    Raises: LayoutUnknown.
    """
    there = _columns_there(conn)
    lacks_column = any(set(later) - there.get(table, set()) for table, later in COLUMNS_LATER.items())
    if lacks_column or not there.keys() >= ADDED_LATER:
        return False
    [(version,)] = conn.execute(f"select layout_version from {tables_of(conn).replica}")
    return bool(version >= LAYOUT_VERSION)


def upgrade_layout(conn: Connection) -> None:
    """Add what a replica of an older version lacks, inside the caller's transaction and `lock_creation`."""
    there = _columns_there(conn)
    create_tables(conn, there)
    if any(set(later) - there.get(table, set()) for table, later in COLUMNS_LATER.items() if table in there):
        for statement in column_statements(conn):
            conn.execute(statement)


def put_first_rows(conn: Connection, tables: ReplicaTables, *, rid: int, incarnation: str) -> None:
    """Write the rows of a new replica that is EMPTY, inside the caller's transaction."""
    conn.execute(
        f"insert into {tables.replica} (one, layout_version, rid, incarnation, status)"
        " values (1, :version, :rid, :incarnation, :status)",
        {
            "version": LAYOUT_VERSION,
            "rid": rid,
            "incarnation": incarnation,
            "status": ReplicaStatus.EMPTY.value,
        },
    )
    conn.execute(
        f"insert into {tables.generator} (one, sampled_s, local_offset_s, remote_offset_s, sequence)"
        " values (1, 0, 0, 0, 0)"
    )
    conn.execute(f"insert into {tables.session} (one, epoch, batch_seq) values (1, 0, 0)")


def finish_upgrade(conn: Connection) -> None:
    """Say that the replica is of this version, in a transaction of its own; the last step of an upgrade."""
    with conn.transaction():
        conn.execute(
            f"update {tables_of(conn).replica} set layout_version = {LAYOUT_VERSION}"
            f" where layout_version < {LAYOUT_VERSION}"
        )


def _columns_there(conn: Connection) -> dict[str, set[str]]:
    prefix = conn.target.table_prefix
    names = [f"{prefix}{table}" for table in TABLES]
    if conn.dialect.name == "postgresql":
        rows = conn.execute(
            """
            select c.relname, a.attname
            from pg_catalog.pg_class c
            join pg_catalog.pg_namespace n on n.oid = c.relnamespace
            left join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            where n.nspname = :schema and c.relname = any(:names)
            """,
            {"schema": conn.target.schema or "public", "names": names},
        )
    else:
        marks = ", ".join(f":name{number}" for number in range(len(names)))
        rows = conn.execute(
            "select s.name, c.name from sqlite_schema s left join pragma_table_info(s.name) c"
            f" where s.name in ({marks})",
            {f"name{number}": name for number, name in enumerate(names)},
        )
    columns: dict[str, set[str]] = {}
    for name, column in rows:
        columns.setdefault(name.removeprefix(prefix), set()).add(column)
    for table, found in columns.items():
        wanted = {line.split()[0] for line in COLUMNS[table] if not line.startswith("primary key")}
        if found != wanted and found != wanted - set(COLUMNS_LATER.get(table, ())):
            other = ", ".join(sorted(str(name) for name in found ^ wanted))
            raise LayoutUnknown(f"{prefix}{table} is not Lethe's table: {other}")
    return columns


def lock_creation(conn: Connection) -> None:
    """Keep others from creating tables to the end of the transaction; on SQLite the transaction does."""
    assert conn.in_transaction, "the lock is held to the commit"
    if conn.dialect.name == "postgresql":
        # CREATE ... IF NOT EXISTS of two sessions at once fails with a unique violation.
        conn.execute("select pg_advisory_xact_lock(:key)", {"key": _CREATION_LOCK})


def create_tables(conn: Connection, there: Collection[str] = ()) -> None:
    """Make those that are not there, empty, inside the caller's transaction and under `lock_creation`."""
    for statement in create_statements(conn, there):
        conn.execute(statement)


def keep_filled(conn: Connection) -> None:
    """Keep a total initialisation from emptying the tables until this transaction ends; its first statement.

    PostgreSQL: TRUNCATE empties a table for older snapshots too: an ONLINE replica of nothing.
    LOCK takes no snapshot.

    Raises: ReplicaMissing.
    """
    assert conn.in_transaction, "the lock must last as long as the reading"
    if conn.dialect.name == "postgresql":
        tables = tables_of(conn)
        try:
            conn.execute(f"lock table {tables.entries}, {tables.ruv} in access share mode")
        except TargetTablesMissing as error:
            raise ReplicaMissing(error.detail) from error
