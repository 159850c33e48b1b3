"""How RESTORED ends: a replica's own changes are back, or an admin accepts that they are lost.

Rules:
- a replica that takes own writes again has a record for each of its extinctions: its next own change would
  hide one without from all others.
Source: design.md, Replication.
"""

from dataclasses import dataclass, replace

from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.csn_generator import GeneratorState, adjust
from spark.replication.records import ReplicaRow, ReplicaStatus
from spark.replication.replica.extinction_records import log_left_over
from spark.replication.replica.local_write import forget_given_up
from spark.replication.replica.part_row import read_row
from spark.replication.replica.replica import lock_replica, own_max_of, save_generator, save_replica
from spark.targets.connection import Connection


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Own changes lost for good: those above `after` (None: from the first), up to and with `upto`."""

    rid: int
    after: Csn | None
    upto: Csn | None


def level_if_reached(
    conn: Connection, tables: ReplicaTables, *, own_max: str | None, now_s: int
) -> ReplicaStatus:
    """End RESTORED where the own changes are back, inside the transaction that has brought them.

    Cheap where the replica is not RESTORED: one read. Where it ends, the RUV of the own id may move on.

    Args:
        own_max: the RUV of the replica's own id as this transaction leaves it.
    Returns: the status from here on.
    Raises: ClockSkewExceeded, TimestampOutOfRange: the own changes are so far ahead that the clock must be
        wrong.
    """
    row = read_row(conn, tables)
    if row.status is not ReplicaStatus.RESTORED or not _is_reached(row, own_max):
        return row.status
    row, state = lock_replica(conn, tables)
    if row.status is not ReplicaStatus.RESTORED or not _is_reached(row, own_max):
        return row.status
    return _end_restored(conn, tables, row, state, now_s=now_s).status


def accept_loss(conn: Connection, *, incarnation: str, now_s: int) -> GivenUp | None:
    """End RESTORED without the changes that are missing: an admin says so.

    Args:
        incarnation: the new one; nobody mistakes this replica for the one before.
    Returns: the own changes that are given up; None: the replica is not marked, and nothing was changed.
    Raises: ReplicaMissing. ClockSkewExceeded, TimestampOutOfRange: `upto` is so far ahead that the clock must
        be wrong.
    """
    tables = tables_of(conn)
    with conn.transaction():
        row, state = lock_replica(conn, tables)
        if row.status is not ReplicaStatus.RESTORED and row.restored_upto is None:
            return None
        own_max = own_max_of(conn, tables)
        given_up = GivenUp(row.rid, None if own_max is None else Csn(own_max), row.restored_upto)
        forget_given_up(conn, tables, after=own_max)
        _end_restored(conn, tables, replace(row, incarnation=incarnation), state, now_s=now_s)
    return given_up


def _end_restored(
    conn: Connection, tables: ReplicaTables, row: ReplicaRow, state: GeneratorState, *, now_s: int
) -> ReplicaRow:
    if row.restored_upto is not None:
        save_generator(conn, tables, adjust(state, remote=row.restored_upto, now_s=now_s))
    status = row.status
    if status is ReplicaStatus.RESTORED:
        status = ReplicaStatus.EMPTY if row.generation is None else row.status_when_level
    row = replace(row, status=status, restored_upto=None)
    save_replica(conn, tables, row)
    if status is ReplicaStatus.ONLINE:
        log_left_over(conn, tables, now_s=now_s)
    return row


def _is_reached(row: ReplicaRow, own_max: str | None) -> bool:
    return row.restored_upto is None or (own_max or "") >= row.restored_upto
