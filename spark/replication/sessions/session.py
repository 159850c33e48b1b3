"""A consumer's side of a session: the lease of its supplier, and the frame of a total initialisation.

Rules:
- one supplier at a time; who lost the lease, by time or by another's acquire, changes nothing any more;
- a refused acquire has changed nothing;
- a replica is INITIALIZING from the moment its tables are emptied until its copy is complete; whoever finds
  it so after a crash can only resume the copy, or begin a new one;
- own changes that were emptied without consent to their loss are back in the copy, or the replica is
  RESTORED after it;
- a copy is readable only where its RUV covers every entry: what its supplier has lost since is never shown.
Source: design.md, Replication; facts/replication-session, sections 2 and 6.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.csn_generator import (
    ClockSkewExceeded,
    GeneratorState,
    TimestampOutOfRange,
    adjust,
)
from spark.replication.dead_letters import Direction, resolve_dead_letters
from spark.replication.proofs.judging import (
    check_identity,
    check_own_claim,
    compare_heads,
    keep_copied,
    keep_signatures,
    require_one_history,
)
from spark.replication.proofs.shown_proofs import shown_history
from spark.replication.records import ReplicaRow, ReplicaStatus, SessionMode, Snapshot, Vectors
from spark.replication.replica.buried import take_bound
from spark.replication.replica.replica import (
    lock_replica,
    mark_restored,
    read_vectors,
    save_generator,
    save_replica,
    snapshot,
)
from spark.replication.replica.restored import level_if_reached
from spark.replication.session_errors import (
    BoundBeyondCopy,
    ClockSkewed,
    DuplicateRid,
    GenerationMismatch,
    SessionEnded,
    SessionNotFound,
    TotalIncomplete,
    TotalNotUnderWay,
    TotalRuvDiffers,
)
from spark.replication.sessions.begin import begin_total
from spark.replication.sessions.calls import Acquire, Acquired, Completion, Released
from spark.replication.sessions.clock_bound import AHEAD_MAX_S, news, require_in_time
from spark.replication.sessions.parts import refuse_part
from spark.replication.sessions.peers import note_told
from spark.replication.sessions.row import SessionRow, Ticket, TotalCopy, lock_session, save_session
from spark.targets.connection import Connection

__all__ = [
    "Acquire",
    "Acquired",
    "Completion",
    "Released",
    "acquire",
    "complete_total",
    "release",
    "renew",
    "require_generation",
    "require_total",
    "take_over",
]


def acquire(
    conn: Connection,
    request: Acquire,
    *,
    now_s: int,
    ahead_max_s: int = AHEAD_MAX_S,
    consent: Callable[[], bool] = lambda: False,
) -> Acquired:
    """Give the lease to a supplier, in one transaction; to the same session again in a new epoch.

    Args:
        now_s: this service's clock, by which CSNs are made.
        ahead_max_s: how far ahead of it a peer's CSN may be.
        consent: asked, in this transaction, before changes that only this replica has are discarded: whether
            an admin here has granted it, once.
    Raises: ClockSkewed, DuplicateRid, SupplierPartial, PartDiffers, GenerationMismatch, ReplicaBusy,
        ReplicaSupplies, ConsumerAhead or DiscardNotGranted, HistoryDiverged, HistoryUnproven, in this order;
        of a TOTAL GenerationMismatch says that a supplier without one has nothing to copy. ReplicaMissing,
        TargetLockTimeout.
    """
    tables = tables_of(conn)
    with conn.transaction():
        row = lock_session(conn, tables)
        replica, generator = lock_replica(conn, tables)
        vectors = read_vectors(conn)
        _refuse_ahead_of_time(replica, vectors, request, now_s=now_s, ahead_max_s=ahead_max_s)
        followed = _followed(generator, replica, request, now_s=now_s)
        if request.supplier_rid == replica.rid:
            raise DuplicateRid(f"both are replica {replica.rid}", {"rid": replica.rid})
        if request.history is not None:
            check_identity(conn, tables, replica.rid, request.supplier_rid, request.history)
        refuse_part(conn, tables, replica, request)
        _refuse_foreign(replica, request)
        row.require_free(request.session_id, request.supplier_rid)
        row = _granted(row, request)
        unproven: tuple[int, ...] = ()
        if request.mode is SessionMode.TOTAL:
            row = begin_total(conn, tables, row, replica, vectors, request, consent)
        elif request.generation is not None and request.generation == replica.generation:
            save_generator(conn, tables, followed)
            unproven = _compare(conn, tables, replica, vectors, request)
            _look_for_loss(conn, tables, replica, vectors, request, now_s=now_s)
        note_told(conn, tables, row, replica, vectors, request)
        save_session(conn, tables, row)
        return replace(_acquired(conn, row, snapshot(conn)), unproven=unproven)


def renew(conn: Connection, ticket: Ticket, *, lease_s: float) -> datetime:
    """Let the lease run for so long from now, in one transaction; when it ends.

    Raises: SessionNotFound, SessionEnded, StaleEpoch.
    """
    tables = tables_of(conn)
    with conn.transaction():
        row = lock_session(conn, tables)
        row.require(ticket)
        row = replace(row, lease_s=lease_s)
        row = replace(row, expires_at_s=row.renewed_s)
        save_session(conn, tables, row)
    return row.expires_at


def complete_total(
    conn: Connection,
    ticket: Ticket,
    *,
    ruv: Mapping[int, Csn],
    generation: str,
    now_s: int,
    buried: Csn | None = None,
) -> Mapping[int, Csn]:
    """End the copy of a total initialisation, in one transaction; again it changes nothing.

    The replica takes RUV and generation of the supplier as they were when the copy began, and nothing before
    that RUV is ever logged here: it is the purge vector too. It stays INITIALIZING: the entries may be newer
    than the RUV, until a session has brought the changes made meanwhile.

    Args:
        ticket: with the last batch that was answered; a target that was put back since then lacks it.
        buried: the greatest CSN of the tombstones that the supplier had purged when all entries were read;
            a greater one that came with them counts.
    Returns: the RUV.
    Raises: SessionNotFound, SessionEnded, StaleEpoch, TotalNotUnderWay, BatchGap; TotalRuvDiffers: the copy
        was begun at another RUV. BoundBeyondCopy, ClockSkewed.
    """
    tables = tables_of(conn)
    with conn.transaction():
        row = lock_session(conn, tables)
        row.require(ticket)
        row.require_batches(ticket)
        total = require_total(row)
        if dict(ruv) != dict(total.ruv) or generation != total.generation:
            begun_at = {str(rid): str(csn) for rid, csn in total.ruv.items()}
            raise TotalRuvDiffers(
                "the copy was begun at another RUV", {"ruv": begun_at, "generation": total.generation}
            )
        if not total.is_copied:
            total = replace(total.under(buried), is_copied=True)
            take_over(conn, tables, total, buried=total.buried, now_s=now_s)
            row = replace(row, total=total)
        save_session(conn, tables, replace(row, expires_at_s=row.renewed_s))
        return read_vectors(conn).ruv


def release(conn: Connection, ticket: Ticket, *, now_s: int, complete: Completion | None = None) -> Released:
    """Give the lease back, in one transaction; again and again it changes nothing.

    Args:
        complete: of a TOTAL: a window taken after the copy's end is here too, which the ticket's last batch
            proves. The replica is readable now.
    Raises: SessionNotFound, StaleEpoch; complete: TotalNotUnderWay, TotalIncomplete, BatchGap, SessionEnded:
        another supplier has come since.
    """
    tables = tables_of(conn)
    with conn.transaction():
        row = lock_session(conn, tables)
        if row.session_id == ticket.session_id:
            if row.epoch != ticket.epoch:
                row.require(ticket)
            if complete is not None:
                row.require_batches(ticket)
                _go_online(conn, tables, row, complete, now_s=now_s)
                row = replace(row, total=None, cursor=None)
            ended = replace(row, session_id=None, last_session_id=row.session_id, expires_at_s=None)
            save_session(conn, tables, ended)
        elif row.last_session_id != ticket.session_id:
            raise SessionNotFound(f"this replica knows no session {ticket.session_id}")
        found = snapshot(conn)
        if complete is not None and found.replica.status is ReplicaStatus.INITIALIZING:
            raise SessionEnded(f"session {ticket.session_id} has ended before its copy was complete")
        return Released(found.replica, found.vectors.ruv)


def require_generation(ours: str | None, theirs: str | None) -> None:
    """Raise GenerationMismatch unless both are of one generation."""
    if ours is None or ours != theirs:
        detail = f"this replica is of generation {ours or 'none'}, the supplier of {theirs or 'none'}"
        raise GenerationMismatch(detail, {"consumer": ours, "supplier": theirs})


def require_total(row: SessionRow) -> TotalCopy:
    """The copy that the holder of the lease makes.

    Raises: TotalNotUnderWay.
    """
    if row.mode is not SessionMode.TOTAL or row.total is None:
        raise TotalNotUnderWay("this session initialises nothing: it was acquired as INCREMENTAL")
    return row.total


def _refuse_ahead_of_time(
    replica: ReplicaRow, vectors: Vectors, request: Acquire, *, now_s: int, ahead_max_s: int
) -> None:
    """A supplier whose clock, or any of whose changes, is too far ahead is not followed."""
    shown = [request.csn_now]
    if request.mode is SessionMode.TOTAL or request.generation == replica.generation:
        shown += news(request.ruv, vectors.ruv) + news(request.extinctions, vectors.ruv)
    require_in_time(shown, now_s=now_s, ahead_max_s=ahead_max_s)


def _followed(
    generator: GeneratorState, replica: ReplicaRow, request: Acquire, *, now_s: int
) -> GeneratorState:
    """The generator, past everything that the supplier shows; a foreign generation's RUV says nothing."""
    shown = [request.csn_now]
    if request.mode is SessionMode.TOTAL or request.generation == replica.generation:
        shown += request.ruv.values()
    try:
        return adjust(generator, remote=max(shown), now_s=now_s)
    except (ClockSkewExceeded, TimestampOutOfRange) as error:
        raise ClockSkewed(str(error)) from error


def _refuse_foreign(replica: ReplicaRow, request: Acquire) -> None:
    """Changes of another generation are no use; a replica without one, or with half a copy, shows no RUV."""
    shows_ruv = replica.generation is not None and replica.status is not ReplicaStatus.INITIALIZING
    if request.mode is not SessionMode.TOTAL and shows_ruv:
        require_generation(replica.generation, request.generation)


def _granted(row: SessionRow, request: Acquire) -> SessionRow:
    before = row.session_id if row.session_id not in (None, request.session_id) else row.last_session_id
    return replace(
        row,
        epoch=row.epoch + 1,
        session_id=request.session_id,
        last_session_id=before,
        mode=request.mode,
        supplier_rid=request.supplier_rid,
        supplier_store=request.supplier_store,
        supplier_generation=request.generation,
        lease_s=request.lease_s,
        expires_at_s=row.now_s + request.lease_s,
        batch_seq=0,
    )


def _compare(
    conn: Connection, tables: ReplicaTables, replica: ReplicaRow, vectors: Vectors, request: Acquire
) -> tuple[int, ...]:
    """Compare the histories where the supplier is not ahead; of which replica ids that cannot be done.

    Raises: HistoryDiverged.
    """
    if request.history is None or replica.status is ReplicaStatus.INITIALIZING:
        return ()
    found = compare_heads(conn, vectors.ruv, request.history.heads)
    require_one_history(found)
    keep_signatures(conn, tables, request.history.heads, own_rid=replica.rid)
    return found.unproven


def _look_for_loss(
    conn: Connection,
    tables: ReplicaTables,
    replica: ReplicaRow,
    vectors: Vectors,
    request: Acquire,
    *,
    now_s: int,
) -> None:
    """A supplier that has more of this replica's own changes than it: it was put back from a backup."""
    if replica.status is ReplicaStatus.INITIALIZING:
        return
    own, theirs = vectors.ruv.get(replica.rid), request.ruv.get(replica.rid)
    if theirs is not None and theirs > (own or ""):
        if request.history is not None and not request.is_trusted:
            check_own_claim(conn, tables, replica.rid, theirs, request.history)
        mark_restored(conn, upto=theirs)
    level_if_reached(conn, tables, own_max=own, now_s=now_s)


def take_over(
    conn: Connection, tables: ReplicaTables, total: TotalCopy, *, buried: Csn | None, now_s: int
) -> None:
    """Let a replica whose entries are all there go on from the RUV that they stand for.

    In the caller's transaction.

    Args:
        buried: up to where tombstones are missing among the entries; None: nowhere.
    Raises: ClockSkewed, BoundBeyondCopy.
    """
    replica, generator = lock_replica(conn, tables)
    _require_within(buried, total.ruv)
    take_bound(conn, replica.buried, buried)
    conn.execute_many(
        f"insert into {tables.ruv} (rid, max_csn, purged_csn, last_modified_s)"
        " values (:rid, :csn, :csn, :now_s)",
        [{"rid": rid, "csn": str(csn), "now_s": now_s} for rid, csn in sorted(total.ruv.items())],
    )
    keep_copied(conn, tables, total.heads, total.ruv, own_rid=replica.rid)
    if total.ruv:
        try:
            followed = adjust(generator, remote=max(total.ruv.values()), now_s=now_s)
        except (ClockSkewExceeded, TimestampOutOfRange) as error:
            raise ClockSkewed(str(error)) from error
        save_generator(conn, tables, followed)
    save_replica(conn, tables, replace(replica, generation=total.generation))
    resolve_dead_letters(conn, Direction.RECEIVED, total.ruv, now_s=now_s)


def _require_within(buried: Csn | None, ruv: Mapping[int, Csn]) -> None:
    """Refuse a bound that no tombstone of the copy can have had: it would refuse changes for ever.

    What the RUV has is in time, or was here before: the acquire has looked.

    Raises: BoundBeyondCopy.
    """
    greatest = max(ruv.values(), default=None)
    if buried is not None and buried > (greatest or ""):
        detail = f"tombstones were purged up to {buried}, and the copy ends at {greatest or 'none'}"
        raise BoundBeyondCopy(detail, {"buried": str(buried), "ruv_max": greatest and str(greatest)})


def _go_online(
    conn: Connection, tables: ReplicaTables, row: SessionRow, completion: Completion, *, now_s: int
) -> None:
    total = require_total(row)
    if not total.is_copied:
        raise TotalIncomplete("the copy has not ended: complete-total is missing")
    beyond = total.beyond(read_vectors(conn).ruv)
    if beyond:
        rids = ", ".join(map(str, beyond))
        detail = f"entries were copied whose changes of {rids} have not followed: begin the session again"
        raise TotalIncomplete(detail, {"rids": list(beyond)})
    replica, _ = lock_replica(conn, tables)
    # Own changes that were missing before may be missing still: then it stays read-only.
    restored = replace(replica, status=ReplicaStatus.RESTORED, incarnation=completion.incarnation)
    save_replica(conn, tables, restored)
    own_max = read_vectors(conn).ruv.get(replica.rid)
    status = level_if_reached(conn, tables, own_max=own_max, now_s=now_s)
    # Whoever is put back now must still lack what it lacks already.
    lacking = replica.restored_upto if status is ReplicaStatus.RESTORED else None
    # Adopted is what stays, whatever becomes of this transaction: no change that is logged with the end.
    completion.adopt(completion.incarnation, max(filter(None, (own_max, lacking)), default=None))


def _acquired(conn: Connection, row: SessionRow, found: Snapshot) -> Acquired:
    replica = found.replica
    # A session that brings changes can do nothing for half a copy, and must not take its RUV for true.
    is_whole = row.mode is SessionMode.TOTAL or replica.status is not ReplicaStatus.INITIALIZING
    generation = replica.generation if is_whole else None
    return Acquired(
        epoch=row.epoch,
        expires_at=row.expires_at,
        replica=replica,
        generation=generation,
        ruv=None if generation is None else found.vectors.ruv,
        purged=found.vectors.purged,
        is_copied=row.total is not None and row.total.is_copied,
        resume_after=row.cursor,
        copied={} if row.total is None else row.total.copied,
        entries=None if row.total is None else row.total.entries,
        buried=None if row.total is None else row.total.buried,
        history=shown_history(conn, {} if generation is None else found.vectors.ruv, replica.rid),
    )
