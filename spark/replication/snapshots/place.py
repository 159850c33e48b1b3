"""Putting a snapshot in the place of a blank replica, inside the one transaction of its job.

Rules:
- nothing is written into a replica that holds a change or an entry, or that another session is filling;
- the replica goes on with sessions from the snapshot's RUV, as after a total initialisation: what lies at or
  below it is in the entries, and never comes into this changelog;
- the key of a replica id that is known here is not taken from a file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.consumer.extinctions import put_extinctions
from spark.replication.errors import ReplicationRefused
from spark.replication.proofs.judging import check_identity
from spark.replication.records import ReplicaRow, ReplicaStatus
from spark.replication.replica.extinction_index import judge, read_index
from spark.replication.replica.replica import lock_replica, read_vectors, save_replica
from spark.replication.replica.upsert import put_entries
from spark.replication.session_errors import DuplicateRid, GenerationMismatch, ReplicaBusy
from spark.replication.sessions.clock_bound import require_in_time
from spark.replication.sessions.row import SessionRow, TotalCopy, lock_session
from spark.replication.sessions.session import take_over
from spark.replication.snapshots.form import EXTINCTIONS, Manifest, read_parts
from spark.targets.connection import Connection


class ReplicaNotBlank(ReplicationRefused):
    """The replica holds something: a snapshot would be mixed with it."""

    code: ClassVar[str] = "REPLICA_NOT_BLANK"


@dataclass(frozen=True, slots=True)
class Placed:
    """A replica as the snapshot leaves it; `again`: this import had done it before."""

    ruv: Mapping[int, Csn]
    entries: int
    again: bool = False


def place_snapshot(
    conn: Connection,
    path: Path,
    manifest: Manifest,
    *,
    incarnation: str,
    adopt: Callable[[str, Csn | None], None],
    now_s: int,
    ahead_max_s: int,
    told: Callable[[int], None],
) -> Placed:
    """Fill a blank replica, inside the caller's transaction.

    Args:
        path, manifest: a file that was read whole once.
        incarnation: the replica's new one, of this import alone: found again, the import was done.
        adopt: told of it before the commit.
        now_s, ahead_max_s: this service's clock, and how far ahead of it a CSN may be.
        told: told of the entries so far; what it raises ends the import, and nothing was done.
    Raises: ReplicaNotBlank, ReplicaBusy, GenerationMismatch, DuplicateRid, ClockSkewed, SnapshotDamaged,
        ReplicaMissing; TargetError; OSError.
    """
    assert conn.in_transaction, "a snapshot is there or it is not"
    tables = tables_of(conn)
    row = lock_session(conn, tables)
    replica, _ = lock_replica(conn, tables)
    if (replica.incarnation, replica.status) == (incarnation, ReplicaStatus.ONLINE):
        return Placed(read_vectors(conn).ruv, manifest.entries, again=True)
    _require_blank(conn, tables, row, replica)
    _require_fitting(conn, tables, replica, manifest, now_s=now_s, ahead_max_s=ahead_max_s)
    rows = _put_rows(conn, tables, path, manifest, now_s=int(row.now_s), told=told)
    copy = TotalCopy("", manifest.rid, manifest.generation, manifest.ruv, True, manifest.history.heads)
    take_over(conn, tables, copy, buried=manifest.buried, now_s=now_s)
    replica, _ = lock_replica(conn, tables)
    save_replica(conn, tables, replace(replica, status=ReplicaStatus.ONLINE, incarnation=incarnation))
    adopt(incarnation, None)
    return Placed(manifest.ruv, rows)


def _require_blank(conn: Connection, tables: ReplicaTables, row: SessionRow, replica: ReplicaRow) -> None:
    if row.is_held:
        row.require_free("")
        raise ReplicaBusy("a session holds the lease")
    if replica.status not in (ReplicaStatus.EMPTY, ReplicaStatus.ONLINE):
        raise ReplicaNotBlank(f"the replica is {replica.status}: a snapshot goes into a new replica only")
    for name in (tables.ruv, tables.entries, tables.changelog, tables.extinctions):
        if conn.execute(f"select 1 from {name} limit 1"):
            raise ReplicaNotBlank("the replica holds changes: a snapshot goes into a new replica only")


def _require_fitting(
    conn: Connection,
    tables: ReplicaTables,
    replica: ReplicaRow,
    manifest: Manifest,
    *,
    now_s: int,
    ahead_max_s: int,
) -> None:
    if replica.generation not in (None, manifest.generation):
        raise GenerationMismatch(
            f"this replica is of generation {replica.generation}, the snapshot of {manifest.generation}",
            {"consumer": replica.generation, "supplier": manifest.generation},
        )
    if replica.rid == manifest.rid or replica.rid in manifest.ruv:
        raise DuplicateRid(
            f"the snapshot holds changes of replica {replica.rid}: give the new replica another number",
            {"rid": replica.rid},
        )
    require_in_time(list(manifest.ruv.values()), now_s=now_s, ahead_max_s=ahead_max_s)
    check_identity(conn, tables, replica.rid, manifest.rid, manifest.history)


def _put_rows(
    conn: Connection,
    tables: ReplicaTables,
    path: Path,
    manifest: Manifest,
    *,
    now_s: int,
    told: Callable[[int], None],
) -> int:
    count = 0
    index = None
    for name, rows in read_parts(path, manifest):
        if name == EXTINCTIONS:
            put_extinctions(conn, tables, rows, now_s=now_s)
            continue
        index = index or read_index(conn, tables)  # extinctions stand first: entries of extinct keys stay out
        put_entries(conn, tables, judge(index, rows).rest_of(rows))
        count += rows.num_rows
        told(count)
    return count
