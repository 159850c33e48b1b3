"""The state machine of the log switch: start it, end it when everything in the old table is replicated.

Rules:
- The old table is emptied by TRUNCATE only, under its exclusive lock, had at once or not at all: an open
  writer keeps it, and whatever was committed before is seen by the check that follows.
- READ COMMITTED: a snapshot older than the lock would not show what TRUNCATE takes.
- The status changes after the TRUNCATE is durable, in a transaction of its own that finds the table empty
  again: setval is not undone by a rollback. Killed between the two, the switch is still under way with an
  empty table, and the next attempt ends it.
- The status is not undone by a rollback, the note of the switch's start is: it is taken away, for good,
  before the status changes. A switch that has none was cut off at its start, and begins when that is found.
- A transaction that read the status before the switch keeps to the old table as long as it lasts; while one
  is open the switch does not end, though it may have written nothing yet, or hold no lock on the table.

Source: facts/slony, section 3.
"""

from collections.abc import Mapping
from typing import Final

from spark.events.cleaning.blockers import STARTED_KEY, read_older_sessions, read_sessions, read_started
from spark.events.cleaning.cluster_lock import locked
from spark.events.cleaning.log_tables import has_rows, read_origins, read_status, read_table
from spark.events.cleaning.records import Blocked, Finished, Healed, LogStatusRead, Started
from spark.events.records import Catalog
from spark.formats.slony import LogStatus
from spark.targets.connection import Connection
from spark.targets.errors import TargetError, TargetLockTimeout

INDICES: Final = "addpartiallogindices"


class _InUse(Exception):
    """Somebody holds a lock on the old table."""


def read_log_status(
    conn: Connection, catalog: Catalog, *, bounds: Mapping[int, int] | None = None
) -> LogStatusRead:
    """Where the switch stands, and who is in its way. Reads only, without a lock.

    Args:
        bounds: as for `try_finish`.
    """
    schema = catalog.schema
    status = read_status(conn, schema)
    started_at = read_started(conn, schema)
    other = read_table(conn, schema, status.other)
    return LogStatusRead(
        status=status,
        active=read_table(conn, schema, status.active),
        other=other,
        started_at=started_at,
        origins=read_origins(conn, schema, status.other, bounds=bounds),
        sessions=read_sessions(
            conn, schema, status.other, started_at=started_at if status.is_switching else None
        ),
        needs_healing=not status.is_switching and not other.is_empty,
    )


def start_switch(conn: Connection, catalog: Catalog) -> Started:
    """Let writers change to the other log table; nothing is done where they are told so already.

    Raises: ClusterLocked.
    """
    for is_ready in (False, True):
        with locked(conn, catalog):
            before = read_status(conn, catalog.schema)
            if before.is_switching:
                return Started("ALREADY_SWITCHING", before, before)
            if has_rows(conn, catalog.schema, before.other):
                return Started("NOT_CLEAN", before, before)
            if is_ready:
                _switch_to(conn, catalog.schema, before.started)
            else:
                _forget_start(conn, catalog.schema)
    return Started("STARTED", before, before.started)


def try_finish(
    conn: Connection, catalog: Catalog, *, bounds: Mapping[int, int] | None = None
) -> Finished | Blocked:
    """End the switch under way if everything in the old table has been replicated; waits for nobody.

    Args:
        bounds: by origin a seqno from which on its oldest SYNC is looked for: below it lie thousands of dead
            rows after a cleanup, or events that a cleanup has yet to remove. Any SYNC that all have confirmed
            proves the same.
    Raises: ClusterLocked.
    """
    try:
        emptied = _empty_old(conn, catalog, bounds)
    except _InUse:
        return _in_use(conn, catalog)
    if not isinstance(emptied, LogStatus):
        return emptied
    try:
        ended = _end_switch(conn, catalog, emptied)
    except _InUse:
        return _in_use(conn, catalog)
    if isinstance(ended, Finished) and ended.outcome == "FINISHED":
        problem = _refresh_indices(conn, catalog, ended.after)
        return Finished(ended.outcome, ended.before, ended.after, ended.table, problem)
    return ended


def heal_status(conn: Connection, catalog: Catalog) -> Healed | None:
    """Take the status back to a switch of the same active table where the clean one has rows.

    That is what a cleanup leaves that was rolled back, or a writer from before a switch. None: it is right.

    Raises: ClusterLocked.
    """
    for is_ready in (False, True):
        with locked(conn, catalog):
            before = read_status(conn, catalog.schema)
            if before.is_switching or not has_rows(conn, catalog.schema, before.other):
                return None
            # The same bit says which table is written; the other bit makes slons read both.
            after = LogStatus(before | 2)
            if is_ready:
                _switch_to(conn, catalog.schema, after)
            else:
                _forget_start(conn, catalog.schema)
    return Healed(before, after, before.other)


def _empty_old(
    conn: Connection, catalog: Catalog, bounds: Mapping[int, int] | None
) -> LogStatus | Finished | Blocked:
    """The first transaction: TRUNCATE; the status under which it was done, or why it was not."""
    schema = catalog.schema
    with locked(conn, catalog):
        status = read_status(conn, schema)
        if not status.is_switching:
            return Finished("IDLE", status, status, None)
        _lock_log(conn, schema, status.other)
        if read_started(conn, schema) is None:
            _note_start(conn, schema)  # whoever is open now counts as older, and is waited for
        older = read_older_sessions(conn, schema, status.other)
        if older:
            return Blocked("OLD_TRANSACTION", status, status.other, (), older)
        origins = read_origins(conn, schema, status.other, bounds=bounds)
        if not all(item.is_drained for item in origins):
            return Blocked("NOT_DRAINED", status, status.other, origins)
        conn.execute(f"truncate {conn.dialect.qualify(schema, status.other)}")
    return status


def _end_switch(conn: Connection, catalog: Catalog, emptied: LogStatus) -> Finished | Blocked:
    """The second transaction: the status, over a table that is found empty again."""
    schema = catalog.schema
    with locked(conn, catalog):
        status = read_status(conn, schema)
        if status != emptied:
            return Finished("BY_ANOTHER", emptied, status, emptied.other)
        _lock_log(conn, schema, status.other)
        if has_rows(conn, schema, status.other):
            return Blocked("NOT_DRAINED", status, status.other, read_origins(conn, schema, status.other))
        _set_status(conn, schema, status.finished)
    return Finished("FINISHED", status, status.finished, status.other)


def _lock_log(conn: Connection, schema: str, table: str) -> None:
    try:
        conn.execute(f"lock table {conn.dialect.qualify(schema, table)} in access exclusive mode nowait")
    except TargetLockTimeout as error:
        raise _InUse from error


def _in_use(conn: Connection, catalog: Catalog) -> Finished | Blocked:
    """Who held the lock, as far as they still do."""
    status = read_status(conn, catalog.schema)
    found = read_sessions(conn, catalog.schema, status.other, started_at=None)
    return Blocked("LOCKED", status, status.other, (), tuple(item for item in found if item.has_lock))


def _set_status(conn: Connection, schema: str, status: LogStatus) -> None:
    conn.execute(
        "select pg_catalog.setval(cast(:name as regclass), :value)",
        {"name": conn.dialect.qualify(schema, "sl_log_status"), "value": int(status)},
    )


def _switch_to(conn: Connection, schema: str, status: LogStatus) -> None:
    _set_status(conn, schema, status)
    # After the status: whoever read the old one has a transaction that began before this instant.
    _note_start(conn, schema)


def _forget_start(conn: Connection, schema: str) -> None:
    registry = conn.dialect.qualify(schema, "sl_registry")
    conn.execute(
        f"update {registry} set reg_timestamp = '-infinity' where reg_key = :key", {"key": STARTED_KEY}
    )


def _note_start(conn: Connection, schema: str) -> None:
    registry = conn.dialect.qualify(schema, "sl_registry")
    asked = {"key": STARTED_KEY}
    known = conn.execute_count(
        f"update {registry} set reg_timestamp = clock_timestamp() where reg_key = :key", asked
    )
    if not known:
        conn.execute(
            f"insert into {registry} (reg_key, reg_timestamp) values (:key, clock_timestamp())", asked
        )


def _refresh_indices(conn: Connection, catalog: Catalog, status: LogStatus) -> str | None:
    """Let the cluster's function make its partial indices on the empty table; what it said where it failed.

    Without them the program reads more slowly, and makes them at its next own switch. It makes and drops
    them under an exclusive lock; that is had at once or not at all, and no switch begins meanwhile: a lock
    that is waited for would stand in front of the writers to come.
    """
    if INDICES not in catalog.functions:
        return None
    try:
        with locked(conn, catalog):
            if read_status(conn, catalog.schema) != status:
                return None  # somebody has switched again, and makes them
            _lock_log(conn, catalog.schema, status.other)
            conn.execute(f"select {conn.dialect.qualify(catalog.schema, INDICES)}()")
    except _InUse:
        return f"{status.other} is read at this moment"
    except TargetError as error:
        return error.detail
    return None
