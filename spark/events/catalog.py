"""The catalog of a cluster as one node has it: is it there, whose is it, who takes part. Reads only.

Source: slony-events-confirmations, 4.1; facts/slony, section 1.
"""

import hashlib
import json
from functools import cache
from typing import Final

from spark.events.errors import CatalogIncomplete, NodeUninitialised, NotASlonyDatabase, UnknownCluster
from spark.events.records import Address, Catalog, Node, Path, ServerSelf
from spark.formats.slony import NODE_UNINITIALISED, TABLES, schema_of
from spark.targets.connection import Connection, identity
from spark.targets.dialects.drivers import psycopg
from spark.targets.errors import TargetSchemaUnsupported

NODES_MAX: Final = 200
"""More rows of sl_node are no cluster; the program itself is meant for a dozen nodes."""
CLUSTERS_NAMED_MAX: Final = 10
LOG_STATUS: Final = "sl_log_status"
LOCAL_NODE_ID: Final = "sl_local_node_id"
SEQUENCES: Final = (LOG_STATUS, LOCAL_NODE_ID)
VERSION: Final = "slonyversion"
SECRETS: Final = frozenset({"password", "passfile", "sslpassword"})
"""Of a connection string."""

_RELATIONS = """
    select c.relname::text from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = :schema
        and (c.relname = any(:tables) and c.relkind in ('r', 'p')
             or c.relname = any(:sequences) and c.relkind = 'S')
"""
_CLUSTERS = """
    select substr(n.nspname, 2) from pg_catalog.pg_namespace n
    join pg_catalog.pg_class c on c.relnamespace = n.oid
    where left(n.nspname, 1) = '_' and c.relname = :sequence and c.relkind = 'S'
    order by 1 limit :limit
"""
_FUNCTIONS = """
    select distinct lower(p.proname) from pg_catalog.pg_proc p
    join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname = :schema
        and pg_catalog.has_schema_privilege(n.oid, 'USAGE')
        and pg_catalog.has_function_privilege(p.oid, 'EXECUTE')
"""


def read_catalog(conn: Connection, cluster: str) -> Catalog:
    """Read who a node is and what it knows of its cluster.

    Raises: NotASlonyDatabase, UnknownCluster, CatalogIncomplete, NodeUninitialised; TargetReadOnly: the role
        may not read it; TargetSchemaUnsupported: not PostgreSQL, or more nodes than NODES_MAX.
    """
    require_tables(conn, cluster)
    schema = schema_of(cluster)
    [(local_node,)] = conn.execute(f"select last_value from {conn.dialect.qualify(schema, LOCAL_NODE_ID)}")
    if local_node == NODE_UNINITIALISED:
        raise NodeUninitialised(f"the catalog of cluster {cluster!r} belongs to no node yet")
    functions = read_functions(conn, cluster)
    return Catalog(
        cluster=cluster,
        schema=schema,
        version=_version(conn, schema) if VERSION in functions else None,
        local_node=int(local_node),
        nodes=_nodes(conn, schema),
        paths=_paths(conn, schema),
        functions=functions,
    )


def require_tables(conn: Connection, cluster: str) -> None:
    """Check that the schema is a cluster's; a role without any right on it can do that too.

    Raises: NotASlonyDatabase, UnknownCluster, CatalogIncomplete, TargetSchemaUnsupported.
    """
    if conn.dialect.name != "postgresql":
        raise TargetSchemaUnsupported("a cluster of Slony-I is on PostgreSQL")
    wanted = {"schema": schema_of(cluster), "tables": list(TABLES), "sequences": list(SEQUENCES)}
    found = {name for (name,) in conn.execute(_RELATIONS, wanted)}
    if not found:
        raise _unknown(conn, cluster)
    missing = [name for name in (*TABLES, *SEQUENCES) if name not in found]
    if missing:
        raise CatalogIncomplete(
            f"the schema of cluster {cluster!r} has no {', '.join(missing)}:"
            " removed in part, or of a version before 2.2"
        )


def read_functions(conn: Connection, cluster: str) -> frozenset[str]:
    """The names of the cluster's functions that are there and may be executed, in lower case."""
    return frozenset(name for (name,) in conn.execute(_FUNCTIONS, {"schema": schema_of(cluster)}))


def _unknown(conn: Connection, cluster: str) -> NotASlonyDatabase:
    rows = conn.execute(_CLUSTERS, {"sequence": LOCAL_NODE_ID, "limit": CLUSTERS_NAMED_MAX + 1})
    if not rows:
        return NotASlonyDatabase("no cluster of Slony-I has its catalog in this database")
    names = ", ".join(repr(name) for (name,) in rows[:CLUSTERS_NAMED_MAX])
    more = ", ..." if len(rows) > CLUSTERS_NAMED_MAX else ""
    return UnknownCluster(f"there is no cluster {cluster!r} in this database, but {names}{more}")


def _version(conn: Connection, schema: str) -> str:
    [(version,)] = conn.execute(f"select {conn.dialect.qualify(schema, VERSION)}()")
    return str(version)


def _nodes(conn: Connection, schema: str) -> tuple[Node, ...]:
    rows = conn.execute(
        "select no_id, coalesce(no_active, false), coalesce(no_failed, false), no_comment"
        f" from {conn.dialect.qualify(schema, 'sl_node')} order by no_id limit :limit",
        {"limit": NODES_MAX + 1},
    )
    if len(rows) > NODES_MAX:
        raise TargetSchemaUnsupported(f"sl_node has more than {NODES_MAX} rows")
    return tuple(Node(id=int(i), is_active=a, has_failed=f, comment=c) for i, a, f, c in rows)


def _paths(conn: Connection, schema: str) -> tuple[Path, ...]:
    rows = conn.execute(
        "select pa_server, pa_client, pa_conninfo"
        f" from {conn.dialect.qualify(schema, 'sl_path')} order by pa_server, pa_client"
    )
    return tuple(Path(server=int(s), client=int(c), digest=path_digest(conninfo)) for s, c, conninfo in rows)


def read_addresses(conn: Connection, catalog: Catalog, node: int) -> tuple[Address, ...]:
    """Where the paths to a node lead, each once."""
    rows = conn.execute(
        f"select distinct pa_conninfo from {conn.dialect.qualify(catalog.schema, 'sl_path')}"
        " where pa_server = :node order by 1",
        {"node": node},
    )
    found = (_address(conninfo) for (conninfo,) in rows)
    return tuple(dict.fromkeys(address for address in found if address is not None))


def _address(conninfo: str) -> Address | None:
    try:
        parts = psycopg.conninfo.conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        return None
    host, port, database = (parts.get(name) for name in ("host", "port", "dbname"))
    number = int(port) if port is not None and str(port).isdecimal() else None
    return Address(None if host is None else str(host), number, None if database is None else str(database))


def read_server(conn: Connection) -> ServerSelf:
    """What the server behind a connection says of itself."""
    [(started_at, is_standby)] = conn.execute(
        "select pg_catalog.pg_postmaster_start_time(), pg_catalog.pg_is_in_recovery()"
    )
    return ServerSelf(identity(conn), started_at, bool(is_standby))


@cache
def pending_digest() -> str:
    """Of what Slony-I writes into sl_path until the real connection string has arrived."""
    return path_digest("<event pending>")


def path_digest(conninfo: str) -> str:
    """SHA-256 of a connection string without its secrets, in hexadecimal.

    A digest of a short password can be guessed; and its order and spelling do not matter: two nodes may
    have been told the same path in different words. What libpq cannot read is taken as it is: the program
    writes `<event pending>` until the real string has arrived.
    """
    try:
        parts: object = {
            key: value
            for key, value in psycopg.conninfo.conninfo_to_dict(conninfo).items()
            if key not in SECRETS
        }
    except psycopg.ProgrammingError:
        parts = conninfo
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
