"""What a target is, before anything is planned on it. Reads only.

Source: design.md, Purge; facts/symmetricds-purge, sections 1, 3 and 5 (locks).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from spark.formats.symmetricds import DATA, OUTGOING_BATCH, Layout, TimeEncoding
from spark.purge.catalog import (
    Catalog,
    can_create_ledger,
    is_read_only,
    layout_of,
    missing_rights,
    read_catalog,
    table_sizes,
)
from spark.targets.connection import Connection, identity, target_now
from spark.targets.errors import MixedTimeTypes

# The least integer that can be milliseconds (March 1973); seconds would make every row look old.
LEAST_EPOCH_MS = 100_000_000_000
ALL = "ALL"
# The document compares no time of `sym_data_event`.
COMPARED_TABLES = (DATA, OUTGOING_BATCH)
_POSTGRESQL_TIMES: dict[str, TimeEncoding] = {
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
}


@dataclass(frozen=True, slots=True)
class Inspection:
    """Facts about one target at one moment.

    Attributes:
        now: the target's clock, aware, UTC.
        permissions_missing: (table, right).
        sizes: table -> (rows estimated, bytes).
        sym_parameter: the parameters that apply to this node, the most specific row of each.
        own_purge_running: signs that SymmetricDS itself is purging, one sentence each.
    """

    layout: Layout
    server_version: int
    identity: str
    now: datetime
    time_encoding: TimeEncoding
    permissions_missing: tuple[tuple[str, str], ...]
    can_create_ledger: bool
    read_only: bool
    sizes: dict[str, tuple[int | None, int | None]]
    sym_parameter: dict[str, str | None]
    own_purge_running: tuple[str, ...]


def inspect(conn: Connection) -> Inspection:
    """Read everything that decides whether and how this target can be purged.

    Raises: TargetTablesMissing, TargetSchemaUnsupported, MixedTimeTypes: times that do not compare with each
        other.
    """
    catalog = read_catalog(conn)
    missing = missing_rights(conn)
    readable = not any(right == "SELECT" for _table, right in missing)
    return Inspection(
        layout=layout_of(catalog),
        server_version=conn.server_version,
        identity=identity(conn),
        now=target_now(conn),
        time_encoding=time_encoding(conn, catalog) if readable else "timestamp",
        permissions_missing=missing,
        can_create_ledger=can_create_ledger(conn),
        read_only=is_read_only(conn),
        sizes=table_sizes(conn) if readable else {},
        sym_parameter=_parameters(conn, catalog) if readable else {},
        own_purge_running=(*_held_lock(conn, catalog), *_running_deletes(conn)) if readable else (),
    )


def time_encoding(conn: Connection, catalog: Catalog) -> TimeEncoding:
    """How `create_time` of the purged tables is kept: by column type, on SQLite by what the rows hold.

    Raises: MixedTimeTypes: two encodings, or one that is neither a time nor milliseconds.
    """
    if conn.dialect.name == "sqlite":
        return _sqlite_encoding(conn, COMPARED_TABLES)
    kinds = {
        column.type for table in COMPARED_TABLES for column in catalog[table] if column.name == "create_time"
    }
    if len(kinds) != 1 or not kinds <= _POSTGRESQL_TIMES.keys():
        raise MixedTimeTypes(f"create_time is {' and '.join(sorted(kinds))}")
    return _POSTGRESQL_TIMES[kinds.pop()]


def _sqlite_encoding(conn: Connection, tables: Iterable[str]) -> TimeEncoding:
    found: dict[str, int] = {}
    for table in tables:
        name = conn.dialect.qualify(None, f"{conn.target.table_prefix}{table}")
        rows = conn.execute(
            "select case when typeof(create_time) = 'text' and create_time glob :date then"
            # An offset is an instant of its own, and compares as text with no other.
            " case when substr(create_time, 11) glob :offset"
            " then 'unknown text with an offset' else 'text' end"
            " when typeof(create_time) = 'integer' and create_time >= :least then 'epoch_ms'"
            f" else 'unknown ' || typeof(create_time) end, count(*) from {name}"
            " where create_time is not null group by 1",
            {
                "date": "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]*",
                "offset": "*[-+Zz]*",
                "least": LEAST_EPOCH_MS,
            },
        )
        for kind, count in rows:
            found[str(kind)] = found.get(str(kind), 0) + int(count)
    if len(found) > 1 or any(kind.startswith("unknown") for kind in found):
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))
        raise MixedTimeTypes(f"create_time holds values that do not compare with each other: {counts}")
    return "epoch_ms" if "epoch_ms" in found else "text"


def _parameters(conn: Connection, catalog: Catalog) -> dict[str, str | None]:
    if "parameter" not in catalog or not _readable(conn, "parameter"):
        return {}
    external_id, group = _own_names(conn, catalog)
    rows = conn.execute(
        f"select external_id, node_group_id, param_key, param_value from {_name(conn, 'parameter')}"
        " where external_id in (:all, :external_id) and node_group_id in (:all, :group)",
        {"all": ALL, "external_id": external_id or ALL, "group": group or ALL},
    )
    # A row for this very node goes over one for its group, that over one for all.
    rows.sort(key=lambda row: (row[0] != ALL, row[1] != ALL))
    return {str(key): value for _external, _group, key, value in rows}


def _own_names(conn: Connection, catalog: Catalog) -> tuple[str | None, str | None]:
    """External id and group of the node whose database this is; None where that cannot be known."""
    node = _name(conn, "node")
    if "node_identity" in catalog and _readable(conn, "node_identity"):
        rows = conn.execute(
            f"select n.external_id, n.node_group_id from {node} n"
            f" join {_name(conn, 'node_identity')} i on i.node_id = n.node_id"
        )
        return rows[0] if len(rows) == 1 else (None, None)
    names = {column.name for column in catalog["node"]}
    if "node_group_id" not in names or not _readable(conn, "node"):
        return None, None
    groups = conn.execute(f"select distinct node_group_id from {node} limit 2")
    # Where all nodes are of one group, so is this one.
    return None, (groups[0][0] if len(groups) == 1 else None)


def _held_lock(conn: Connection, catalog: Catalog) -> tuple[str, ...]:
    """2.x writes its lock to the table; 3.x keeps it in memory, so an empty table proves nothing."""
    if "lock" not in catalog or not _readable(conn, "lock"):
        return ()
    rows = conn.execute(
        f"select lock_action, locking_server_id, lock_time from {_name(conn, 'lock')}"
        " where lock_action like 'PURGE%' and lock_time is not null and locking_server_id is not null"
    )
    return tuple(f"sym_lock {action} is held by {server} since {since}" for action, server, since in rows)


def _running_deletes(conn: Connection) -> tuple[str, ...]:
    if conn.dialect.name == "sqlite":
        return ()
    prefix = re.escape(conn.target.table_prefix)
    rows = conn.execute(
        "select pid, application_name from pg_catalog.pg_stat_activity where pid <> pg_backend_pid()"
        " and datname = current_database() and state = 'active'"
        " and application_name not like 'job~_%' escape '~' and query ~* :pattern order by pid",
        {"pattern": rf"^\s*delete\s+from\s+(\w+\.)?\"?{prefix}(data|data_event|outgoing_batch)\M"},
    )
    return tuple(f"backend {pid} ({name or 'unnamed'}) is deleting captured rows" for pid, name in rows)


def _name(conn: Connection, table: str) -> str:
    return conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}{table}")


def _readable(conn: Connection, table: str) -> bool:
    if conn.dialect.name == "sqlite":
        return True
    found = conn.execute(
        "select has_table_privilege(cast(:name as regclass), 'SELECT')", {"name": _name(conn, table)}
    )
    return bool(found[0][0])
