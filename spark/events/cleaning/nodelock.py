"""Rows of sl_nodelock whose backend has ended.

The program asks the kernel for the process; Lethe asks the server for the backend, which also sees that a
process id has gone to somebody else.
Source: facts/slony, section 2, step 5.
"""

from spark.targets.connection import Connection

_STALE = "not exists (select from pg_catalog.pg_stat_activity a where a.pid = l.nl_backendpid)"


def count_stale(conn: Connection, schema: str) -> int:
    """How many there are."""
    [(rows,)] = conn.execute(f"select count(*) from {_table(conn, schema)} l where {_STALE}")
    return int(rows)


def remove_stale(conn: Connection, schema: str) -> int:
    """Remove them; how many went."""
    return conn.execute_count(f"delete from {_table(conn, schema)} l where {_STALE}")


def _table(conn: Connection, schema: str) -> str:
    return conn.dialect.qualify(schema, "sl_nodelock")
