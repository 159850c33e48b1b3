"""A replica that a TOTAL is about to copy says so where it lies, and is not emptied meanwhile.

Two replicas that initialise each other at the same moment, or several in a ring, would each empty the other
by a request that its supplier sent while it was whole still. So each notes first, at itself, that it
supplies; then it looks whether it is whole; then it asks. An acquire that is to empty a replica looks for
such a note: of all requests of a ring the last one finds it. The note ends when the request was answered, or
by itself.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from spark.formats.replica import tables_of
from spark.replication.records import ReplicaStatus
from spark.replication.session_errors import ReplicaSupplies
from spark.replication.sessions.row import SessionRow, lock_session, save_session
from spark.targets.connection import Connection

SUPPLYING_S: Final = 120.0
"""Longer than an acquire whose answer nobody waits for any more may still be on its way."""


def note_supplying(conn: Connection, session_id: str) -> None:
    """Say, in one transaction, that a session is about to copy this replica; again it lasts longer.

    The caller looks at the replica's status afterwards, not before.

    Raises: ReplicaMissing, TargetLockTimeout.
    """
    tables = tables_of(conn)
    with conn.transaction():
        row = lock_session(conn, tables)
        notes = {**_current(row), session_id: row.now_s + SUPPLYING_S}
        save_session(conn, tables, replace(row, supplies=notes))


def end_supplying(conn: Connection, session_id: str) -> None:
    """Take the note back, in one transaction: the request was answered, or never sent.

    Raises: ReplicaMissing, TargetLockTimeout.
    """
    tables = tables_of(conn)
    with conn.transaction():
        row = lock_session(conn, tables)
        notes = {name: until for name, until in _current(row).items() if name != session_id}
        save_session(conn, tables, replace(row, supplies=notes))


def require_not_supplying(row: SessionRow, status: ReplicaStatus) -> None:
    """Raise unless the replica may be emptied; half a copy supplies nobody.

    By how many sessions, and not by which: whoever knows the name of one could send batches in it.

    Raises: ReplicaSupplies.
    """
    count = len(_current(row))
    if count and status is not ReplicaStatus.INITIALIZING:
        detail = "this replica is about to be copied itself; the service that has it lists the sessions"
        raise ReplicaSupplies(detail, {"session_count": count})


def _current(row: SessionRow) -> Mapping[str, float]:
    return {name: until for name, until in row.supplies.items() if row.now_s < until}
