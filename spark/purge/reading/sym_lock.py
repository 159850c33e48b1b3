"""The program's own lock of a purge: a row of `sym_lock`, taken and given back as SymmetricDS 2.x does it.

A server that holds a row for longer than `cluster.lock.timeout.ms` is taken for dead and its lock is broken;
whoever holds it longer than that must renew it. The program stops an action for good with a lock of the
server STOPPED whose time lies in the future: that one is never old.
Source: facts/symmetricds-purge, sections 1 and 5; the program's cluster service, read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark.formats.symmetricds import LOCK
from spark.purge.cutoff import CutoffValue
from spark.purge.reading.catalog import columns_of
from spark.targets.connection import Connection
from spark.targets.errors import TargetReadOnly, TargetRowConflict

CLUSTER = "CLUSTER"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the row, None: nobody; `since` as the column keeps it."""

    server_id: str | None
    since: Any


class LockUnusable(Exception):
    """There is no such table, or it may not be written."""


def take_lock(
    conn: Connection,
    action: str,
    server_id: str,
    *,
    now: Callable[[Any], CutoffValue],
    is_dead: Callable[[Any], bool],
) -> Holder | None:
    """Take, break or renew the row, or tell who has it; one that is missing is made, as the program does.

    Args:
        now: what to write as the time of the lock, given the time that stands there (SQLite keeps text or
            milliseconds, which do not compare with each other).
        is_dead: whether a lock of that time may be broken.
    Raises: LockUnusable. TargetLockTimeout: try again.
    """
    columns = columns_of(conn, LOCK)
    if not {"lock_action", "locking_server_id", "lock_time"} <= set(columns):
        raise LockUnusable("there is no sym_lock: SymmetricDS has no lock of its own here")
    try:
        held = _read(conn, action, columns)
        if held is None:
            _add(conn, action, with_type="lock_type" in columns)
            held = _read(conn, action, columns)
        if held is None or not (held.since is None or held.server_id == server_id or is_dead(held.since)):
            return held
        seen = "" if held.since is None else " or lock_time = :seen"
        conn.execute(
            f"update {_name(conn)} set locking_server_id = :server, lock_time = :now"
            f" where lock_action = :action{_of_cluster(columns)}"
            f" and (lock_time is null or locking_server_id = :server{seen})",
            {"server": server_id, "now": now(held.since), "action": action}
            | ({} if held.since is None else {"seen": held.since}),
        )
        held = _read(conn, action, columns)  # not the count: MariaDB does not count a row that stays the same
    except TargetReadOnly as error:
        raise LockUnusable(f"sym_lock may not be written: {error.detail}") from error
    return held if held is None or held.server_id != server_id else None


def release_lock(conn: Connection, action: str, server_id: str) -> bool:
    """Give the row back; whether it was ours."""
    columns = columns_of(conn, LOCK)
    if not {"lock_action", "locking_server_id", "lock_time"} <= set(columns):
        return False
    ours = {"action": action, "server": server_id}
    where = " where lock_action = :action and locking_server_id = :server"
    try:
        if not conn.execute(f"select 1 from {_name(conn)}{where}", ours):
            return False
        # The old values first: MariaDB assigns from left to right.
        last = [f"last_{name} = {name}, " for name in ("locking_server_id", "lock_time")]
        last = [text for text in last if text.partition(" ")[0] in columns]
        sql = f"update {_name(conn)} set {''.join(last)}locking_server_id = null, lock_time = null{where}"
        return conn.execute_count(sql, ours) > 0
    except TargetReadOnly:
        return False


def _add(conn: Connection, action: str, *, with_type: bool) -> None:
    names, values = ("lock_action, lock_type", ":action, :type") if with_type else ("lock_action", ":action")
    bound = {"action": action, "type": CLUSTER} if with_type else {"action": action}
    try:
        conn.execute(f"insert into {_name(conn)} ({names}) values ({values})", bound)
    except TargetRowConflict:
        return  # somebody else has just made it


def _of_cluster(columns: tuple[str, ...]) -> str:
    return f" and lock_type = '{CLUSTER}'" if "lock_type" in columns else ""


def _read(conn: Connection, action: str, columns: tuple[str, ...]) -> Holder | None:
    rows = conn.execute(
        f"select locking_server_id, lock_time from {_name(conn)} where lock_action = :action"
        f"{_of_cluster(columns)}",
        {"action": action},
    )
    return Holder(None if rows[0][0] is None else str(rows[0][0]), rows[0][1]) if rows else None


def _name(conn: Connection) -> str:
    return conn.dialect.qualify(conn.target.schema, f"{conn.target.table_prefix}{LOCK}")
