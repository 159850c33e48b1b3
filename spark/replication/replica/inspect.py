"""What a replica's target is, for whoever looks at it. Reads only, and makes nothing."""

import os
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from spark.formats.replica import TABLES, tables_of
from spark.replication.records import ReplicaRow
from spark.replication.replica.replica import find_replica, own_max_of
from spark.targets.connection import Connection, identity, sqlite_path, target_now
from spark.targets.files.mode_bits import may

COUNTED_MAX_BYTES: Final = 64 * 1024 * 1024
"""SQLite keeps no statistics: the rows of a larger file are not counted for a look."""
_RIGHTS: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True, slots=True)
class ReplicaInspection:
    """Facts about a replica at one moment.

    Attributes:
        replica: None: its tables are not there yet.
        own_max: the greatest CSN of its own.
        now: the target's clock, aware, UTC.
        sizes: table -> (rows estimated, bytes); None where the target does not know.
        permissions_missing: (table, schema or database, right).
    """

    replica: ReplicaRow | None
    own_max: str | None
    identity: str
    server_version: int
    now: datetime
    sizes: dict[str, tuple[int | None, int | None]]
    permissions_missing: tuple[tuple[str, str], ...]


def inspect_replica(conn: Connection) -> ReplicaInspection:
    """Look at a target that holds a replica, or is to hold one.

    Raises: LayoutUnknown: tables of these names are there and are not ours.
    """
    with conn.transaction(read_only=True):
        row = find_replica(conn)
        own_max = None if row is None else own_max_of(conn, tables_of(conn))
        sizes = {} if row is None else _sizes(conn)
        missing = _missing_rights(conn, is_there=row is not None)
    return ReplicaInspection(
        replica=row,
        own_max=own_max,
        identity=identity(conn),
        server_version=conn.server_version,
        now=target_now(conn),
        sizes=sizes,
        permissions_missing=missing,
    )


def _sizes(conn: Connection) -> dict[str, tuple[int | None, int | None]]:
    tables, prefix = tables_of(conn), conn.target.table_prefix
    if conn.dialect.name == "sqlite":
        counted = os.path.getsize(sqlite_path(conn.target)) <= COUNTED_MAX_BYTES
        return {f"{prefix}{table}": (_count(conn, table) if counted else None, None) for table in TABLES}
    sizes: dict[str, tuple[int | None, int | None]] = {}
    for table in TABLES:
        [(rows, size)] = conn.execute(
            "select c.reltuples::bigint, pg_catalog.pg_total_relation_size(c.oid)"
            " from pg_catalog.pg_class c where c.oid = cast(:name as regclass)",
            {"name": getattr(tables, table)},
        )
        sizes[f"{prefix}{table}"] = (int(rows) if rows >= 0 else None, int(size))  # -1: never analysed
    return sizes


def _count(conn: Connection, table: str) -> int:
    [(rows,)] = conn.execute(f"select count(*) from {getattr(tables_of(conn), table)}")
    return int(rows)


def _missing_rights(conn: Connection, *, is_there: bool) -> tuple[tuple[str, str], ...]:
    if conn.dialect.name == "sqlite":
        path = sqlite_path(conn.target)
        places = ((path, os.W_OK), (os.path.dirname(path), os.W_OK | os.X_OK))
        return tuple((place, "write") for place, wanted in places if not may(place, wanted))
    missing = []
    # Entries that are not all new go by way of a temporary table.
    [(database, allowed)] = conn.execute(
        "select current_database(), has_database_privilege(current_database(), 'TEMPORARY')"
    )
    if not allowed:
        missing.append((database, "TEMPORARY"))
    if not is_there:
        schema = conn.target.schema or "public"
        [(allowed,)] = conn.execute("select has_schema_privilege(:schema, 'CREATE')", {"schema": schema})
        return tuple(missing) if allowed else (*missing, (schema, "CREATE"))
    for table in TABLES:
        name = getattr(tables_of(conn), table)
        for right in _RIGHTS:
            [(allowed,)] = conn.execute(
                "select has_table_privilege(:name, :right)", {"name": name, "right": right}
            )
            if not allowed:
                missing.append((f"{conn.target.table_prefix}{table}", right))
    return tuple(missing)
