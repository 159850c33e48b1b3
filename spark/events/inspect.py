"""What a node of a cluster is at one moment, for whoever looks at it. Reads only.

Connection strings and texts of statements are never read: both may hold passwords.
Source: facts/slony, sections 1, 3, 4 and 8.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from spark.events.catalog import read_catalog, require_tables
from spark.events.cleaning.log_switch import read_log_status
from spark.events.cleaning.records import LogStatusRead
from spark.events.records import Catalog
from spark.events.rights import Ability, MissingRight, missing_rights
from spark.formats.slony import schema_of
from spark.targets.connection import Connection, identity, target_now

SLONS_MAX: Final = 200
"""A slon has some ten sessions at its own node and two at each other."""
CLEANER: Final = "slon.local_cleanup"
"""The session of slon's cleanup thread, at its own node only."""
SIZED: Final = ("sl_event", "sl_confirm", "sl_seqlog", "sl_log_1", "sl_log_2", "sl_log_script")

# A row of sl_nodelock or sl_components may be left of a slon that has ended, and its pid be another's by now.
_SLONS = """
    select a.pid, coalesce(a.application_name, ''), coalesce(a.usename::text, ''), a.state,
        coalesce(l.nl_nodeid, nullif(c.co_node, 0)), c.co_activity, c.co_starttime, c.co_event
    from pg_catalog.pg_stat_activity a
    left join {nodelock} l on l.nl_backendpid = a.pid
    left join {components} c on c.co_connection_pid = a.pid
    where a.datname = current_database() and a.application_name like 'slon.%'
        and (:is_blind or l.nl_backendpid is not null or c.co_connection_pid is not null)
    order by a.pid limit :limit
"""
_KNOWN_BY: Final = (
    ("sl_nodelock", "(select null::int as nl_nodeid, null::int as nl_backendpid where false)"),
    (
        "sl_components",
        "(select null::int as co_connection_pid, null::int as co_node, null::text as co_activity,"
        " null::timestamptz as co_starttime, null::bigint as co_event where false)",
    ),
)
"""Tables that name a slon's sessions, and what stands for one that may not be read."""
_SIZES = """
    select c.relname::text, c.reltuples::bigint, pg_catalog.pg_total_relation_size(c.oid)
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = :schema and c.relname = any(:tables) order by array_position(:tables, c.relname::text)
"""
_SEES_ALL = """
    select pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
        or (select rolsuper from pg_catalog.pg_roles where rolname = current_user)
"""


@dataclass(frozen=True, slots=True)
class Slon:
    """A session of a slon at this node: of its own slon, or of another node's that listens here.

    Args:
        state: as pg_stat_activity has it; None: the role may not see it.
        node: whose events it is busy with; None: not told.
        activity, since, event: what it said last that it does.
    """

    pid: int
    application: str
    user: str
    state: str | None
    node: int | None
    activity: str | None
    since: datetime | None
    event: int | None


@dataclass(frozen=True, slots=True)
class SlonyInspection:
    """Facts about a node.

    Args:
        catalog: None: the role may not read it.
        is_read_only: a standby, or a database that refuses writes by default.
        permissions_missing: see `spark.events.rights`.
        sees_all_sessions: whether other roles' transactions are shown to it; else `log_status.sessions` is
            not all that may hold back a log switch.
        slons: that are connected here and known to this cluster.
        log_status: the two log tables, and what holds back that one is emptied; None: it may not be read.
        oldest_event_at: of all origins'; None: there is none, or it may not be read.
        sizes: table -> (rows estimated, bytes); None where the target does not know.
    """

    catalog: Catalog | None
    identity: str
    server_version: int
    now: datetime
    is_read_only: bool
    permissions_missing: tuple[MissingRight, ...]
    sees_all_sessions: bool
    slons: tuple[Slon, ...]
    log_status: LogStatusRead | None
    oldest_event_at: datetime | None
    sizes: dict[str, tuple[int | None, int | None]]

    @property
    def cleans_itself(self) -> bool:
        """Whether the node's own slon is running: it cleans up too, by its own clock."""
        return any(slon.application == CLEANER for slon in self.slons)

    def can(self, ability: Ability) -> bool:
        """Whether the role has every right for something."""
        return not self.is_read_only_for(ability) and all(
            one.ability != ability for one in self.permissions_missing
        )

    def is_read_only_for(self, ability: Ability) -> bool:
        """Whether the server refuses it to everybody."""
        return self.is_read_only and ability != "READ"


def inspect_node(conn: Connection, cluster: str) -> SlonyInspection:
    """Look at a database that is to be a node of a cluster.

    Raises: NotASlonyDatabase, UnknownCluster, CatalogIncomplete, NodeUninitialised, TargetSchemaUnsupported.
    """
    require_tables(conn, cluster)
    missing = missing_rights(conn, cluster)
    is_readable = all(one.ability != "READ" for one in missing)
    catalog = read_catalog(conn, cluster) if is_readable else None
    schema = schema_of(cluster)
    [(sees_all,)] = conn.execute(_SEES_ALL)
    return SlonyInspection(
        catalog=catalog,
        identity=identity(conn),
        server_version=conn.server_version,
        now=target_now(conn),
        is_read_only=_is_read_only(conn),
        permissions_missing=missing,
        sees_all_sessions=bool(sees_all),
        slons=_slons(conn, schema),
        log_status=None if catalog is None else read_log_status(conn, catalog),
        oldest_event_at=None if catalog is None else _oldest_event_at(conn, schema),
        sizes=_sizes(conn, schema),
    )


def _slons(conn: Connection, schema: str) -> tuple[Slon, ...]:
    """Sessions that call themselves a slon's and that this cluster knows.

    A role that may read neither table sees those of another cluster in the same database too.
    """
    readable = [_is_readable(conn, schema, table) for table, _ in _KNOWN_BY]
    sources = [
        conn.dialect.qualify(schema, table) if is_readable else nothing
        for (table, nothing), is_readable in zip(_KNOWN_BY, readable, strict=True)
    ]
    rows = conn.execute(
        _SLONS.format(nodelock=sources[0], components=sources[1]),
        {"limit": SLONS_MAX, "is_blind": not any(readable)},
    )
    return tuple(
        Slon(pid, application, user, state, node, activity, _utc(since), event)
        for pid, application, user, state, node, activity, since, event in rows
    )


def _is_readable(conn: Connection, schema: str, table: str) -> bool:
    rows = conn.execute(
        "select has_schema_privilege(n.oid, 'USAGE') and has_table_privilege(c.oid, 'SELECT')"
        " from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = :schema and c.relname = :table and c.relkind in ('r', 'p')",
        {"schema": schema, "table": table},
    )
    return bool(rows and rows[0][0])


def _oldest_event_at(conn: Connection, schema: str) -> datetime | None:
    """The first event of each node, by the primary key; an origin's clock made its time."""
    [(found,)] = conn.execute(
        f"select min(e.at) from {conn.dialect.qualify(schema, 'sl_node')} n cross join lateral ("
        f" select ev_timestamp as at from {conn.dialect.qualify(schema, 'sl_event')}"
        " where ev_origin = n.no_id order by ev_seqno limit 1) e"
    )
    return _utc(found)


def _sizes(conn: Connection, schema: str) -> dict[str, tuple[int | None, int | None]]:
    rows = conn.execute(_SIZES, {"schema": schema, "tables": list(SIZED)})
    # -1: never analysed.
    return {table: (int(count) if count >= 0 else None, int(size)) for table, count, size in rows}


def _is_read_only(conn: Connection) -> bool:
    [(recovering, setting)] = conn.execute(
        "select pg_catalog.pg_is_in_recovery(), current_setting('default_transaction_read_only')"
    )
    # The connection that looks may be read-only by its own doing.
    return bool(recovering) or (setting == "on" and not conn.read_only)


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)
