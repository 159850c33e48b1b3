"""Pages by key: PostgreSQL is kept from sorting what an index gives in order.

A table that has just grown has no statistics; for each page the planner would then read and sort all that is
left (100,000 rows: 250 ms a page instead of 12).
"""

from collections.abc import Mapping
from typing import Any

from spark.targets.connection import Connection


def read_by_index(conn: Connection) -> None:
    """Let the rest of the transaction take rows in the order of an index; SQLite does so anyway."""
    assert conn.in_transaction, "the settings end with the transaction"
    if conn.dialect.name == "postgresql":
        conn.execute(
            "select set_config('enable_sort', 'off', true), set_config('enable_seqscan', 'off', true),"
            " set_config('enable_bitmapscan', 'off', true)"
        )


def select_by_index(conn: Connection, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of one statement that reads by an index: in the caller's transaction, or in one of its own."""
    if conn.in_transaction or conn.dialect.name != "postgresql":
        return conn.execute(sql, params)
    with conn.transaction(read_only=True):
        read_by_index(conn)
        return conn.execute(sql, params)
