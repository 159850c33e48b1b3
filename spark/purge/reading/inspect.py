"""What a target is, before anything is planned on it. Reads only.

Source: design.md, Purge; facts/symmetricds-purge, sections 1, 3 and 5 (locks).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from spark.formats.symmetricds import (
    CONTEXT,
    DATA,
    DATA_EVENT,
    DATA_GAP,
    INCOMING_BATCH,
    LOCK,
    LOCK_ACTIONS,
    NODE,
    OUTGOING_BATCH,
    PURGED_TABLES,
    KindName,
    Layout,
    TimeEncoding,
)
from spark.purge.reading.catalog import (
    Catalog,
    can_create_ledger,
    is_read_only,
    layout_of,
    missing_rights,
    read_catalog,
    table_sizes,
)
from spark.purge.reading.catalog_mysql import lacks_right, running_deletes
from spark.purge.upkeep_rules import RULES, rules_of
from spark.targets.connection import Connection, identity, target_now
from spark.targets.errors import MixedTimeTypes, TargetSchemaUnsupported

# The least integer that can be milliseconds (March 1973); seconds would make every row look old.
LEAST_EPOCH_MS = 100_000_000_000
ALL = "ALL"
# The locks that Lethe itself takes (sym_lock.py) are no sign of another purge.
OWN_LOCK_PREFIX = "lethe-"
# On MySQL a TIMESTAMP is an instant, shown in the zone of the session: UTC. A DATETIME is naive.
_TIMES: dict[str, dict[str, TimeEncoding]] = {
    "postgresql": {"timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz"},
    "mysql": {"datetime": "timestamp", "timestamp": "timestamptz"},
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


def proving_tables(layout: Layout, kind: KindName) -> tuple[str, ...]:
    """Tables that a purge must read to know that what it removes is needed by nobody."""
    if kind != "DATA_GAP" or layout.gap_time != "create_time":
        return ()
    return tuple(table for table in (DATA, DATA_EVENT, OUTGOING_BATCH, CONTEXT) if table in layout.tables)


def inspect(conn: Connection, kind: KindName = "OUTGOING") -> Inspection:
    """Read everything that decides whether and how this target can be purged.

    Args:
        kind: whose tables, columns, times and rights are looked at; the others may be missing.
    Raises: TargetTablesMissing, TargetSchemaUnsupported, MixedTimeTypes: times that do not compare with each
        other.
    """
    catalog = read_catalog(conn, kind)
    layout = layout_of(catalog)
    compared = compared_times(conn, layout, kind)
    missing = missing_rights(conn, kind, also_read=proving_tables(layout, kind), present=layout.tables)
    readable = not any(right == "SELECT" for _table, right in missing)
    return Inspection(
        layout=layout,
        server_version=conn.server_version,
        identity=identity(conn),
        now=target_now(conn),
        time_encoding=time_encoding(conn, catalog, compared) if readable else "timestamp",
        permissions_missing=missing,
        can_create_ledger=can_create_ledger(conn),
        read_only=is_read_only(conn),
        sizes=table_sizes(conn, _present(layout, kind)) if readable else {},
        sym_parameter=_parameters(conn, catalog) if readable else {},
        own_purge_running=_own_purge(conn, catalog, kind) if readable else (),
    )


def _present(layout: Layout, kind: KindName) -> tuple[str, ...]:
    return tuple(table for table in PURGED_TABLES[kind] if table in layout.tables)


def compared_times(conn: Connection, layout: Layout, kind: KindName) -> tuple[tuple[str, str], ...]:
    """(table, column) of the times that a purge compares with its cut-off; none of `sym_data_event`.

    Raises: TargetSchemaUnsupported: gaps in neither of the two forms.
    """
    if kind == "OUTGOING":
        return ((DATA, "create_time"), (OUTGOING_BATCH, "create_time"))
    if kind == "INCOMING":
        return ((INCOMING_BATCH, "create_time"),)
    if kind in RULES:
        rules = rules_of(kind, layout, prefix=conn.target.table_prefix)
        return tuple(dict.fromkeys((rule.table, rule.time) for rule in rules))
    if layout.gap_time is None:
        raise TargetSchemaUnsupported(
            f"{conn.target.table_prefix}{DATA_GAP} has neither status and last_update_time (until 3.8)"
            " nor is_expired and create_time"
        )
    return ((DATA_GAP, layout.gap_time),)


def time_encoding(conn: Connection, catalog: Catalog, compared: Sequence[tuple[str, str]]) -> TimeEncoding:
    """How the compared times are kept: by column type, on SQLite by what the rows hold.

    Raises: MixedTimeTypes: two encodings, or one that is neither a time nor milliseconds.
    """
    if conn.dialect.name == "sqlite":
        return _sqlite_encoding(conn, compared)
    kinds = {column.type for table, name in compared for column in catalog[table] if column.name == name}
    known = _TIMES[conn.dialect.name]
    if len(kinds) != 1 or not kinds <= known.keys():
        raise MixedTimeTypes(f"{compared[0][1]} is {' and '.join(sorted(kinds))}")
    return known[kinds.pop()]


def _sqlite_encoding(conn: Connection, compared: Sequence[tuple[str, str]]) -> TimeEncoding:
    found: dict[str, int] = {}
    for table, column in compared:
        name = conn.dialect.qualify(None, f"{conn.target.table_prefix}{table}")
        rows = conn.execute(
            f"select case when typeof({column}) = 'text' and {column} glob :date then"
            # An offset is an instant of its own, and compares as text with no other.
            f" case when substr({column}, 11) glob :offset"
            " then 'unknown text with an offset' else 'text' end"
            f" when typeof({column}) = 'integer' and {column} >= :least then 'epoch_ms'"
            f" else 'unknown ' || typeof({column}) end, count(*) from {name}"
            f" where {column} is not null group by 1",
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
        name = compared[0][1]
        raise MixedTimeTypes(f"{name} holds values that do not compare with each other: {counts}")
    return "epoch_ms" if "epoch_ms" in found else "text"


def _parameters(conn: Connection, catalog: Catalog) -> dict[str, str | None]:
    if "parameter" not in catalog or not readable(conn, "parameter"):
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
    if NODE not in catalog or not readable(conn, NODE):
        return None, None
    node = _name(conn, NODE)
    if "node_identity" in catalog and readable(conn, "node_identity"):
        rows = conn.execute(
            f"select n.external_id, n.node_group_id from {node} n"
            f" join {_name(conn, 'node_identity')} i on i.node_id = n.node_id"
        )
        return rows[0] if len(rows) == 1 else (None, None)
    names = {column.name for column in catalog[NODE]}
    if "node_group_id" not in names:
        return None, None
    groups = conn.execute(f"select distinct node_group_id from {node} limit 2")
    # Where all nodes are of one group, so is this one.
    return None, (groups[0][0] if len(groups) == 1 else None)


def _own_purge(conn: Connection, catalog: Catalog, kind: KindName) -> tuple[str, ...]:
    return (*_held_lock(conn, catalog, LOCK_ACTIONS[kind]), *_running_deletes(conn, PURGED_TABLES[kind]))


def _held_lock(conn: Connection, catalog: Catalog, action: str) -> tuple[str, ...]:
    """2.x writes its lock to the table; 3.x keeps it in memory, so an empty table proves nothing."""
    if LOCK not in catalog or not readable(conn, LOCK):
        return ()
    rows = conn.execute(
        f"select lock_action, locking_server_id, lock_time from {_name(conn, LOCK)}"
        " where lock_action = :action and lock_time is not null and locking_server_id is not null",
        {"action": action},
    )
    return tuple(
        f"sym_lock {action} is held by {server} since {since}"
        for action, server, since in rows
        if not str(server).startswith(OWN_LOCK_PREFIX)
    )


def _running_deletes(conn: Connection, tables: Sequence[str]) -> tuple[str, ...]:
    if conn.dialect.name == "sqlite":
        return ()
    if conn.dialect.name == "mysql":
        return running_deletes(conn)
    prefix = re.escape(conn.target.table_prefix)
    rows = conn.execute(
        "select pid, application_name from pg_catalog.pg_stat_activity where pid <> pg_backend_pid()"
        " and datname = current_database() and state = 'active'"
        " and application_name not like 'job~_%' escape '~' and query ~* :pattern order by pid",
        {"pattern": rf"^\s*delete\s+from\s+(\w+\.)?\"?{prefix}({'|'.join(tables)})\M"},
    )
    return tuple(
        f"backend {pid} ({name or 'unnamed'}) is deleting rows of these tables" for pid, name in rows
    )


def _name(conn: Connection, table: str) -> str:
    return conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}{table}")


def readable(conn: Connection, table: str) -> bool:
    """Whether the role may read a table, given without prefix, that is there."""
    if conn.dialect.name == "sqlite":
        return True
    if conn.dialect.name == "mysql":
        return not lacks_right(conn, _name(conn, table), "SELECT")
    found = conn.execute(
        "select has_table_privilege(cast(:name as regclass), 'SELECT')", {"name": _name(conn, table)}
    )
    return bool(found[0][0])
