"""A replica at its target: its layout, who it is, its vectors; and what becomes of one that was restored.

Invariants:
- whoever changes the replica's row or its generator holds the lock of the generator's row to the commit
  (SQLite: BEGIN IMMEDIATE), so that local writers and all of this follow one another;
- the generator never goes back;
- a replica that lacks own changes which others may have seen gives no new CSN before they are back, or their
  loss was accepted.
Source: design.md, Replication.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.csn_generator import GeneratorState, adjust
from spark.replication.errors import (
    GenerationDiffers,
    LayoutUnknown,
    ReplicaMissing,
    ReplicaWasRestored,
    RidDiffers,
)
from spark.replication.proofs.history_points import fill_chains
from spark.replication.proofs.identity import ensure_identity
from spark.replication.records import ReplicaRow, ReplicaStatus, Snapshot, Vectors
from spark.replication.replica.layout import (
    finish_upgrade,
    is_current,
    is_layout_there,
    lock_creation,
    put_first_rows,
    upgrade_layout,
)
from spark.replication.replica.part_row import read_row
from spark.targets.connection import Connection, Target, sqlite_path
from spark.targets.errors import TargetTablesMissing
from spark.targets.sqlite_file import create_sqlite_file

_GENERATOR: Final = "sampled_s, local_offset_s, remote_offset_s, sequence"


@dataclass(frozen=True, slots=True)
class Expected:
    """What the service remembers of a replica from its last commit there.

    Attributes:
        own_max: the greatest CSN of the replica's own that it has seen committed; None: none yet.
        again: what it remembers now; None: nobody else can have changed it.
        noted: told of a loss before its mark is committed, and again where that never comes.
    """

    incarnation: str
    own_max: str | None
    again: "Callable[[], Expected] | None" = field(default=None, compare=False)
    noted: "Callable[[ReplicaWasRestored], None] | None" = field(default=None, compare=False)


def create_file(target: Target, *, roots: tuple[str, ...] = ()) -> bool:
    """SQLite: make the file of a new replica (WAL, 0600) where none is; whether it was made.

    Raises: TargetDatabaseMissing: its directory is not there; or another refusal of the system.
    """
    return target.dialect == "sqlite" and create_sqlite_file(sqlite_path(target), roots=roots)


def ensure_layout(conn: Connection, *, rid: int, generation: str | None, incarnation: str) -> ReplicaRow:
    """Create the tables where they are missing, in a transaction of their own, and tell who the replica is.

    Args:
        generation: what an empty replica begins with; None: it is made at the first local write.
        incarnation: of the replica if it is created now.
    Raises: LayoutUnknown: other tables bear these names. RidDiffers, GenerationDiffers: the replica there is
        another one. TargetLockTimeout: somebody else is creating them. TargetReadOnly: this role may not.
    """
    row = find_replica(conn)
    is_old = row is not None and not is_current(conn)
    if row is None or is_old or (row.generation is None and generation is not None):
        with conn.transaction():
            row = _created(conn, rid=rid, generation=generation, incarnation=incarnation)
    if row.rid != rid:
        raise RidDiffers(found=row.rid, wanted=rid)
    if generation is not None and row.generation is not None and row.generation != generation:
        raise GenerationDiffers(found=row.generation, wanted=generation)
    if is_old:
        fill_chains(conn)
        finish_upgrade(conn)
    return row


def find_replica(conn: Connection) -> ReplicaRow | None:
    """Who the replica is; None: there is none yet. Inside a transaction or without one.

    Raises: LayoutUnknown: a table of that name is there and is not ours, or of another version.
    """
    return read_row(conn, tables_of(conn)) if is_layout_there(conn) else None


def read_vectors(conn: Connection) -> Vectors:
    """RUV, first CSNs and purge vector, of one statement; inside a transaction or without one.

    Raises: ReplicaMissing.
    """
    sql = f"select rid, min_csn, max_csn, purged_csn, last_modified_s from {tables_of(conn).ruv} order by rid"
    try:
        rows = conn.execute(sql)
    except TargetTablesMissing as error:
        raise ReplicaMissing(error.detail) from error
    return Vectors(
        ruv={rid: Csn(greatest) for rid, _, greatest, _, _ in rows if greatest is not None},
        min={rid: Csn(least) for rid, least, _, _, _ in rows if least is not None},
        purged={rid: Csn(purged) for rid, _, _, purged, _ in rows if purged is not None},
        last_modified_s={rid: at_s for rid, _, _, _, at_s in rows if at_s is not None},
    )


def snapshot(conn: Connection) -> Snapshot:
    """Replica, vectors and generator of one moment; in a read transaction unless the caller has one open.

    Raises: ReplicaMissing, LayoutUnknown.
    """
    if conn.in_transaction:
        return _snapshot(conn)
    with conn.transaction(read_only=True):
        return _snapshot(conn)


def lock_replica(conn: Connection, tables: ReplicaTables) -> tuple[ReplicaRow, GeneratorState]:
    """Take the lock of the generator's row to the end of the transaction; what stands there then.

    Raises: ReplicaMissing, LayoutUnknown. TargetLockTimeout: other writers hold it for longer than the limit.
    """
    assert conn.in_transaction, "the lock is held to the commit"
    tail = " for update" if conn.dialect.name == "postgresql" else ""
    try:
        numbers = conn.execute(f"select {_GENERATOR} from {tables.generator}{tail}")
    except TargetTablesMissing as error:
        raise ReplicaMissing(error.detail) from error
    # A statement of its own: what is read in the one that waits for the lock is older than the lock.
    row = read_row(conn, tables)
    return row, _generator(row, numbers)


def save_generator(conn: Connection, tables: ReplicaTables, state: GeneratorState) -> None:
    """Keep what the generator remembers, under `lock_replica`."""
    conn.execute(
        f"update {tables.generator} set sampled_s = :sampled_s, local_offset_s = :local_offset_s,"
        " remote_offset_s = :remote_offset_s, sequence = :sequence",
        {
            "sampled_s": state.sampled_s,
            "local_offset_s": state.local_offset_s,
            "remote_offset_s": state.remote_offset_s,
            "sequence": state.sequence,
        },
    )


def save_replica(conn: Connection, tables: ReplicaTables, row: ReplicaRow) -> None:
    """Keep who the replica is, under `lock_replica`; the replica id never changes."""
    conn.execute(
        f"update {tables.replica} set generation = :generation, incarnation = :incarnation,"
        " status = :status, restored_upto = :restored_upto",
        {
            "generation": row.generation,
            "incarnation": row.incarnation,
            "status": row.status.value,
            "restored_upto": row.restored_upto,
        },
    )


def adjust_generator(conn: Connection, tables: ReplicaTables, *, remote: Csn, now_s: int) -> GeneratorState:
    """Follow a peer's greatest CSN, inside the caller's transaction; takes the lock.

    Raises: ClockSkewExceeded, TimestampOutOfRange.
    """
    _, state = lock_replica(conn, tables)
    state = adjust(state, remote=remote, now_s=now_s)
    save_generator(conn, tables, state)
    return state


def advance_ruv(
    conn: Connection, tables: ReplicaTables, rid: int, *, first: str, last: str, now_s: int
) -> None:
    """Move the RUV of one replica to `last`, inside the transaction that writes the records.

    Args:
        first: the least CSN of this batch; it becomes the first CSN where none was known.
    """
    assert conn.in_transaction, "records and the RUV share one transaction"
    conn.execute(
        f"insert into {tables.ruv} as old (rid, min_csn, max_csn, last_modified_s)"
        " values (:rid, :first, :last, :now_s)"
        " on conflict (rid) do update set max_csn = excluded.max_csn,"
        " min_csn = coalesce(old.min_csn, excluded.min_csn), last_modified_s = excluded.last_modified_s"
        " where old.max_csn is null or old.max_csn < excluded.max_csn",
        {"rid": rid, "first": first, "last": last, "now_s": now_s},
    )


def check_restored(conn: Connection, expected: Expected) -> None:
    """Compare the replica with what the service remembers, in a transaction of its own.

    Raises: ReplicaWasRestored: it lacks what it had, and is marked now. ReplicaMissing.
    """
    tables = tables_of(conn)
    with conn.transaction(read_only=True):
        found = loss_of(read_row(conn, tables), own_max_of(conn, tables), expected)
    if found is None:
        return
    with conn.transaction():
        row, _ = lock_replica(conn, tables)
        expected = recalled(row, own_max_of(conn, tables), expected)
        found = loss_of(row, own_max_of(conn, tables), expected)
        if found is not None:
            mark_loss(conn, tables, row, expected, found)
    if found is not None:
        raise found


def loss_of(row: ReplicaRow, own_max: str | None, expected: Expected) -> ReplicaWasRestored | None:
    """Whether a replica lacks what the service remembers of it, and was not marked for that yet."""
    # One that is made anew gets its own changes with the rest; in an older incarnation it lacks later ones.
    is_same = row.incarnation == expected.incarnation or expected.own_max is None
    if row.status is ReplicaStatus.INITIALIZING and is_same:
        return None
    lacks = expected.own_max is not None and (own_max or "") < expected.own_max
    known = row.status is ReplicaStatus.RESTORED and (row.restored_upto or "") >= (expected.own_max or "")
    if row.incarnation == expected.incarnation and (known or not lacks):
        return None
    return ReplicaWasRestored(found_incarnation=row.incarnation, found_own_max=own_max, upto=expected.own_max)


def recalled(row: ReplicaRow, own_max: str | None, expected: Expected) -> Expected:
    """What the service remembers, under `lock_replica`: what looks lost may be older than the lock."""
    is_loss = loss_of(row, own_max, expected) is not None
    again = expected.again if is_loss else None
    return expected if again is None else replace(again(), noted=expected.noted)


def mark_loss(
    conn: Connection, tables: ReplicaTables, row: ReplicaRow, expected: Expected, found: ReplicaWasRestored
) -> None:
    """Mark what `loss_of` has found, under `lock_replica`; it takes the remembered incarnation again."""
    if expected.noted is not None:
        expected.noted(found)
    row = replace(_marked(row, upto=expected.own_max), incarnation=expected.incarnation)
    save_replica(conn, tables, row)


def mark_restored(conn: Connection, *, upto: str) -> None:
    """Make the replica read-only until its own changes up to `upto` are back; the greatest mark counts.

    In the caller's transaction, or in one of its own. A TOTAL under way goes on, with the mark.
    """
    if conn.in_transaction:
        _mark(conn, upto=upto)
        return
    with conn.transaction():
        _mark(conn, upto=upto)


def own_max_of(conn: Connection, tables: ReplicaTables) -> str | None:
    """The RUV of the replica's own id."""
    rows = conn.execute(f"select max_csn from {tables.ruv} where rid = (select rid from {tables.replica})")
    return rows[0][0] if rows else None


def _mark(conn: Connection, *, upto: str) -> None:
    tables = tables_of(conn)
    row, _ = lock_replica(conn, tables)
    save_replica(conn, tables, _marked(row, upto=upto))


def _marked(row: ReplicaRow, *, upto: str | None) -> ReplicaRow:
    greatest = max(row.restored_upto or "", upto or "")
    status = row.status
    if status is not ReplicaStatus.INITIALIZING:
        status = ReplicaStatus.RESTORED
    return replace(row, status=status, restored_upto=Csn(greatest) if greatest else None)


def _created(conn: Connection, *, rid: int, generation: str | None, incarnation: str) -> ReplicaRow:
    """The layout, created or found, inside a transaction."""
    lock_creation(conn)
    tables = tables_of(conn)
    is_new = find_replica(conn) is None
    upgrade_layout(conn)
    ensure_identity(conn, tables)
    if is_new:
        put_first_rows(conn, tables, rid=rid, incarnation=incarnation)
    row, _ = lock_replica(conn, tables)
    if row.status is ReplicaStatus.EMPTY and generation is not None and row.rid == rid:
        row = replace(row, generation=generation, status=ReplicaStatus.ONLINE)
        save_replica(conn, tables, row)
    return row


def _generator(row: ReplicaRow, rows: list[tuple[int, ...]]) -> GeneratorState:
    if len(rows) != 1:
        raise LayoutUnknown(f"the table of the generator has {len(rows)} rows, not one")
    sampled_s, local_offset_s, remote_offset_s, sequence = rows[0]
    return GeneratorState(row.rid, sampled_s, local_offset_s, remote_offset_s, sequence)


def _snapshot(conn: Connection) -> Snapshot:
    tables = tables_of(conn)
    row = read_row(conn, tables)
    numbers = conn.execute(f"select {_GENERATOR} from {tables.generator}")
    return Snapshot(row, read_vectors(conn), _generator(row, numbers))
