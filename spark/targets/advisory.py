"""The fence of a target that has no ledger: a session-level advisory lock (MySQL: a user-level lock).

It lives and dies with the connection that works, so a dead worker frees it. SQLite needs none: who may not
create a table there may not delete a row either.
"""

import hashlib
from dataclasses import dataclass

from spark.targets.connection import Connection
from spark.targets.dialects.mysql_names import lock_name
from spark.targets.errors import TargetLockTimeout


@dataclass(frozen=True, slots=True)
class Holder:
    """A backend that holds the lock; MySQL does not know its name."""

    pid: int
    application_name: str


def hold(conn: Connection, key: str) -> None:
    """Take the lock of `key` for the life of the connection; taken again by the same connection it is kept.

    Advisory locks belong to one database, and the hash adds the schema: two stores on the same tables
    collide, whatever their URLs look like.

    Args:
        key: names the resource. Where it contains an identity it must be the target's own (`identity(conn)`).
    Raises: TargetLockTimeout: another session holds it.
    """
    if conn.dialect.name == "sqlite":
        return
    if conn.dialect.name == "mysql":
        name = _name(conn, key)
        [(taken,)] = conn.execute("select get_lock(:name, 0)", {"name": name})
        if taken != 1:
            [(holder,)] = conn.execute("select is_used_lock(:name)", {"name": name})
            raise TargetLockTimeout(f"{key} is held by connection {holder or '?'}")
        return
    [(taken,)] = conn.execute("select pg_try_advisory_lock(:key)", {"key": _number(conn, key)})
    if not taken:
        who = ", ".join(
            f"{holder.application_name or '?'} (pid {holder.pid})" for holder in holders(conn, key)
        )
        raise TargetLockTimeout(f"{key} is held by {who or 'another session'}")


def release(conn: Connection, key: str) -> None:
    """Give one `hold` back before the connection closes."""
    if conn.dialect.name == "mysql":
        conn.execute("select release_lock(:name)", {"name": _name(conn, key)})
    if conn.dialect.name == "postgresql":
        conn.execute("select pg_advisory_unlock(:key)", {"key": _number(conn, key)})


def holders(conn: Connection, key: str) -> list[Holder]:
    """Who holds the lock of `key`, this connection included."""
    if conn.dialect.name == "sqlite":
        return []
    if conn.dialect.name == "mysql":
        [(holder,)] = conn.execute("select is_used_lock(:name)", {"name": _name(conn, key)})
        return [] if holder is None else [Holder(int(holder), "")]
    rows = conn.execute(
        """
        select l.pid, coalesce(a.application_name, '')
        from pg_catalog.pg_locks l
        left join pg_catalog.pg_stat_activity a on a.pid = l.pid
        where l.locktype = 'advisory' and l.granted and l.objsubid = 1
          and l.database = (select oid from pg_catalog.pg_database where datname = current_database())
          and ((l.classid::bigint << 32) | l.objid::bigint) = :key
        order by l.pid
        """,
        {"key": _number(conn, key)},
    )
    return [Holder(pid, name) for pid, name in rows]


def _number(conn: Connection, key: str) -> int:
    text = f"lethe\0{conn.target.schema or 'public'}\0{key}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)


def _name(conn: Connection, key: str) -> str:
    # These locks belong to the whole server, so the database is part of the name.
    [(database, folds_case)] = conn.execute("select database(), @@lower_case_table_names")
    return lock_name("resource", database.lower() if folds_case else database, key)
