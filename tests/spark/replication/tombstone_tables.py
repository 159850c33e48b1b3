"""Entries of a replica, put and read by plain statements."""

from __future__ import annotations

from collections.abc import Mapping

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.targets.connection import Connection


def put_entries(conn: Connection, entries: Mapping[bytes, tuple[Csn, bool]]) -> None:
    """Entries by key: CSN, and whether it is a tombstone."""
    conn.execute_many(
        f"insert into {tables_of(conn).entries} (database, key, value, csn, is_tombstone)"
        " values (:database, :key, :value, :csn, :dead)",
        [
            {
                "database": b"db",
                "key": key,
                "value": None if dead else b"v",
                "csn": str(found),
                "dead": dead if conn.dialect.name == "postgresql" else int(dead),
            }
            for key, (found, dead) in entries.items()
        ],
    )


def keys_left(conn: Connection) -> set[bytes]:
    """The keys that have an entry, live or not."""
    return {bytes(key) for (key,) in conn.execute(f"select key from {tables_of(conn).entries}")}
