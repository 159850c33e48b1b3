"""One batch of a session, applied in one transaction with the RUV, or refused whole.

The transaction: the session's row (lease, epoch, number); what is covered, refused or missing; changelog,
entries, RUV, dead letters, the end of RESTORED; the session's row again. A batch that was applied already
changes nothing but the lease, and is answered once more.

Order of locks: session, generator (only where a local write could come between, or an extinction comes),
entries by their keys, RUV. Local writers take generator, entries, RUV: no circle.

A change of an extinct key, whichever of the two is older, is logged and moves the RUV like any other; its
entry is not written.
Source: design.md, Replication; facts/replication-decision-table, sections 6 and 7.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from spark.formats.arrow import np, pa, pc
from spark.formats.changes.checks import rids_of
from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.consumer.applied_chain import chain_of_applied
from spark.replication.consumer.arrival import (
    EXTINCTION_UNREADABLE,
    Arrival,
    Sorted,
    arrange,
    refuse_future,
    sort_out,
    unreadable_extinctions,
)
from spark.replication.consumer.bounds import buried_of
from spark.replication.consumer.copied import after_entries
from spark.replication.consumer.extinctions import count_late, put_extinctions
from spark.replication.csn_generator import (
    ClockSkewExceeded,
    GeneratorState,
    TimestampOutOfRange,
    adjust,
    next_csn,
)
from spark.replication.dead_letters import Direction, put_dead_letters, resolve_dead_letters
from spark.replication.proofs.values import BatchProof
from spark.replication.records import RecordKind, ReplicaStatus, SessionMode, Snapshot
from spark.replication.replica.extinction_index import judge, read_index
from spark.replication.replica.part_row import read_row
from spark.replication.replica.replica import (
    advance_ruv,
    lock_replica,
    mark_restored,
    read_vectors,
    save_generator,
    snapshot,
)
from spark.replication.replica.restored import level_if_reached
from spark.replication.replica.upsert import entries_of, put_changes, put_entries
from spark.replication.session_errors import (
    BatchGap,
    ClockSkewed,
    ReplicaInitializing,
    TotalIncomplete,
    TotalNotUnderWay,
)
from spark.replication.sessions.clock_bound import AHEAD_MAX_S
from spark.replication.sessions.parts import require_part_of_changes, require_part_of_entries
from spark.replication.sessions.row import SessionRow, Ticket, lock_session, save_session
from spark.replication.sessions.session import require_generation, require_total
from spark.targets.connection import Connection


class Rejected(NamedTuple):
    """A record that this replica refused, and why."""

    csn: Csn
    code: str
    detail: str


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of the rows of a batch: applied + covered + len(rejected) + halted of them.

    Attributes:
        extinct: of the applied ones, by RID, changes of extinct keys, which no entry shows.
        covered: were here already.
        halted: stand behind a rejected one of their replica.
        ruv: of this replica, as the batch leaves it.
        replayed: the batch was here before; nothing was applied now.
    """

    batch_seq: int
    applied: int
    covered: int
    rejected: tuple[Rejected, ...]
    halted: int
    ruv: Mapping[int, Csn]
    expires_at: datetime
    replayed: bool = False
    extinct: Mapping[int, int] = field(default_factory=dict)


def apply_batch(
    conn: Connection,
    ticket: Ticket,
    batch: pa.RecordBatch,
    *,
    now_s: int,
    ahead_max_s: int = AHEAD_MAX_S,
    proof: BatchProof | None = None,
    trusted_rids: Collection[int] = (),
) -> Applied:
    """Apply changes, in one transaction.

    Args:
        batch: of `record_schema`, as it was decoded and checked.
        now_s: this service's clock, by which CSNs are made.
        ahead_max_s: how far ahead of it a CSN may be.
        trusted_rids: suppliers whom an admin lets bring changes of others without their signature.
    Raises: SessionNotFound, SessionEnded, StaleEpoch, BatchGap, PrevGap, GenerationMismatch,
        ReplicaInitializing, TotalIncomplete, PartDiffers, ClockSkewed, HistoryDiverged, ChangesUnproven:
        nothing has changed. TargetLockTimeout: try again.
    """
    tables, arrival = tables_of(conn), arrange(batch)
    with conn.transaction():
        row = lock_session(conn, tables)
        row.require(ticket)
        if _is_replay(row, ticket):
            return _replayed(conn, tables, row, ticket, arrival)
        if _is_copied_extinctions(row, batch):
            refuse_future(batch, now_s=now_s, ahead_max_s=ahead_max_s)
            return _copy_extinctions(conn, tables, row, ticket, batch)
        found = snapshot(conn)
        _require_changes(row, found)
        require_part_of_changes(found.replica.part, batch)
        sorted_out = _sort_out(conn, tables, arrival, found, now_s=now_s, ahead_max_s=ahead_max_s)
        status = found.replica.status
        if _meets_local_writes(found, sorted_out, now_s=now_s):
            status, sorted_out = _after_local_writes(
                conn, tables, arrival, now_s=now_s, ahead_max_s=ahead_max_s
            )
            found = snapshot(conn)
        is_trusted = row.supplier_rid in trusted_rids
        chain = chain_of_applied(conn, found, arrival, sorted_out, proof, is_trusted=is_trusted)
        ruv, extinct = _write(conn, tables, row, sorted_out, chain)
        if status is ReplicaStatus.RESTORED:
            level_if_reached(conn, tables, own_max=ruv.get(found.replica.rid), now_s=now_s)
            ruv = read_vectors(conn).ruv
        row = _renewed(conn, tables, row, ticket)
    return _applied(ticket, sorted_out, ruv=ruv, expires_at=row.expires_at, extinct=extinct)


def _applied(
    ticket: Ticket,
    sorted_out: Sorted,
    *,
    ruv: Mapping[int, Csn],
    expires_at: datetime,
    extinct: Mapping[int, int],
) -> Applied:
    return Applied(
        batch_seq=ticket.batch_seq,
        applied=sorted_out.applied.num_rows,
        covered=sorted_out.covered,
        rejected=tuple(Rejected(each.csn, each.code, each.detail) for each in sorted_out.refused),
        halted=sorted_out.halted,
        ruv=ruv,
        expires_at=expires_at,
        extinct=extinct,
    )


def apply_entries(
    conn: Connection,
    ticket: Ticket,
    batch: pa.RecordBatch,
    *,
    now_s: int,
    ahead_max_s: int = AHEAD_MAX_S,
    buried: Csn | None = None,
) -> Applied:
    """Put entries of a total initialisation in their place, in one transaction with the copy's cursor.

    Args:
        batch: of `entry_schema`, by ascending (database, key), as it was decoded and checked.
        now_s, ahead_max_s: as for apply_batch. buried: up to where tombstones may be missing among them.
    Raises: SessionNotFound, SessionEnded, StaleEpoch, BatchGap, TotalNotUnderWay, ClockSkewed, PartDiffers:
        nothing has changed. TargetLockTimeout: try again.
    """
    tables = tables_of(conn)
    with conn.transaction():
        row = lock_session(conn, tables)
        row.require(ticket)
        is_replay = _is_replay(row, ticket)
        if not is_replay:
            if require_total(row).is_copied:
                raise TotalNotUnderWay("the copy has ended: changes follow, not entries")
            refuse_future(batch, now_s=now_s, ahead_max_s=ahead_max_s)
            require_part_of_entries(read_row(conn, tables).part, batch)
            put_entries(conn, tables, judge(read_index(conn, tables), batch).rest_of(batch))
            row = after_entries(row, batch, buried=buried)
        row = _renewed(conn, tables, row, ticket)
        ruv = read_vectors(conn).ruv
    rows = batch.num_rows
    return Applied(
        batch_seq=ticket.batch_seq,
        applied=0 if is_replay else rows,
        covered=rows if is_replay else 0,
        rejected=(),
        halted=0,
        ruv=ruv,
        expires_at=row.expires_at,
        replayed=is_replay,
    )


def _is_replay(row: SessionRow, ticket: Ticket) -> bool:
    """Whether the batch was applied in this epoch already.

    Raises: BatchGap: not even the one before it was.
    """
    expected = row.batch_seq + 1
    if ticket.batch_seq > expected:
        detail = f"batch {ticket.batch_seq} came before batch {expected}"
        raise BatchGap(detail, {"expected": expected})
    return ticket.batch_seq < expected


def _require_changes(row: SessionRow, found: Snapshot) -> None:
    """Raise unless the replica can take the supplier's changes now."""
    if row.mode is SessionMode.TOTAL and not require_total(row).is_copied:
        raise TotalIncomplete("changes come after complete-total")
    if row.mode is not SessionMode.TOTAL and found.replica.status is ReplicaStatus.INITIALIZING:
        raise ReplicaInitializing("a total initialisation was begun here and has not ended")
    require_generation(found.replica.generation, row.supplier_generation)


def _sort_out(
    conn: Connection,
    tables: ReplicaTables,
    arrival: Arrival,
    found: Snapshot,
    *,
    now_s: int,
    ahead_max_s: int,
) -> Sorted:
    letters: dict[int, Csn] = {}
    for letter in _open_letters(conn, tables):
        letters[letter.csn.rid] = min(letter.csn, letters.get(letter.csn.rid, letter.csn))
    ruv, buried = found.vectors.ruv, buried_of(conn, tables, found.replica.buried)
    return sort_out(arrival, ruv, now_s=now_s, open_letters=letters, ahead_max_s=ahead_max_s, buried=buried)


def _open_letters(conn: Connection, tables: ReplicaTables) -> list[Rejected]:
    rows = conn.execute(
        f"select csn, code, detail from {tables.dead_letters}"
        " where direction = :direction and resolved_at_s is null",
        {"direction": Direction.RECEIVED.value},
    )
    return [Rejected(Csn(csn), code, detail) for csn, code, detail in rows]


def _meets_local_writes(found: Snapshot, sorted_out: Sorted, *, now_s: int) -> bool:
    """Whether this batch and local writers must not come between each other.

    So it is where own changes come back, and where the next local write would not be newer than what is
    applied now: it would lose against a change that its writer could see. And an extinction forbids keys.
    """
    greatest = sorted_out.greatest
    if greatest is None:
        return False
    if _extinctions_of(sorted_out.applied).num_rows:
        return True
    return found.replica.rid in sorted_out.advances or _next(found.generator, now_s=now_s) <= greatest


def _after_local_writes(
    conn: Connection, tables: ReplicaTables, arrival: Arrival, *, now_s: int, ahead_max_s: int
) -> tuple[ReplicaStatus, Sorted]:
    """Look again, now that no local write can come; the generator follows what is applied."""
    lock_replica(conn, tables)
    found = snapshot(conn)
    sorted_out = _sort_out(conn, tables, arrival, found, now_s=now_s, ahead_max_s=ahead_max_s)
    greatest = sorted_out.greatest
    if greatest is not None:
        try:
            followed = adjust(found.generator, remote=greatest, now_s=now_s)
        except (ClockSkewExceeded, TimestampOutOfRange) as error:
            raise ClockSkewed(str(error)) from error
        save_generator(conn, tables, followed)
    own = sorted_out.advances.get(found.replica.rid)
    if own is None:
        return found.replica.status, sorted_out
    mark_restored(conn, upto=own.last)
    return ReplicaStatus.RESTORED, sorted_out


def _next(generator: GeneratorState, *, now_s: int) -> Csn:
    try:
        return next_csn(generator, now_s=now_s)[0]
    except (ClockSkewExceeded, TimestampOutOfRange) as error:
        raise ClockSkewed(str(error)) from error


def _write(
    conn: Connection, tables: ReplicaTables, row: SessionRow, sorted_out: Sorted, chain: pa.Array
) -> tuple[Mapping[int, Csn], Mapping[int, int]]:
    """Write what is applied and what is refused; the RUV after it, and the changes of extinct keys by RID."""
    at_s, records = int(row.now_s), sorted_out.applied
    put_changes(conn, tables, records, logged_at_s=at_s, chain=chain)
    put_extinctions(conn, tables, _extinctions_of(records), now_s=at_s)
    changes = records.filter(pc.equal(records.column("kind"), RecordKind.CHANGE.value))
    # After the extinctions of this very batch: they hold for what stands before them too.
    judged = judge(read_index(conn, tables), changes)
    put_entries(conn, tables, entries_of(judged.rest_of(changes)))
    count_late(conn, tables, judged.extinctions)
    for rid, advance in sorted(sorted_out.advances.items()):
        advance_ruv(conn, tables, rid, first=advance.first, last=advance.last, now_s=at_s)
    ruv = read_vectors(conn).ruv
    if sorted_out.refused:
        put_dead_letters(conn, Direction.RECEIVED, row.peer, sorted_out.refused, now_s=at_s)
    resolve_dead_letters(conn, Direction.RECEIVED, ruv, now_s=at_s)
    return ruv, _by_rid(judged.those_of(changes))


def _extinctions_of(records: pa.RecordBatch) -> pa.RecordBatch:
    return records.filter(pc.equal(records.column("kind"), RecordKind.EXTINCTION.value))


def _by_rid(records: pa.RecordBatch) -> dict[int, int]:
    rids, counts = np.unique(rids_of(records.column("csn")), return_counts=True)
    return dict(zip(rids.tolist(), counts.tolist(), strict=True))


def _is_copied_extinctions(row: SessionRow, batch: pa.RecordBatch) -> bool:
    """Whether a batch holds the extinctions of a total copy: they come before its entries."""
    if row.mode is not SessionMode.TOTAL or row.total is None or row.total.is_copied:
        return False
    kinds = pc.unique(batch.column("kind")).to_pylist()
    return bool(kinds == [RecordKind.EXTINCTION.value])


def _copy_extinctions(
    conn: Connection, tables: ReplicaTables, row: SessionRow, ticket: Ticket, batch: pa.RecordBatch
) -> Applied:
    """Keep extinctions whose records the copy's RUV covers; the changelog of a copy begins above it."""
    refused = [
        Rejected(Csn(batch.column("csn")[at].as_py()), EXTINCTION_UNREADABLE, detail)
        for at, detail in unreadable_extinctions(batch)
    ]
    lock_replica(conn, tables)
    if not refused:
        put_extinctions(conn, tables, batch, now_s=int(row.now_s))
    row = _renewed(conn, tables, row, ticket)
    return Applied(
        batch_seq=ticket.batch_seq,
        applied=0 if refused else batch.num_rows,
        covered=0,
        rejected=tuple(refused),
        halted=batch.num_rows - len(refused) if refused else 0,
        ruv=read_vectors(conn).ruv,
        expires_at=row.expires_at,
    )


def _renewed(conn: Connection, tables: ReplicaTables, row: SessionRow, ticket: Ticket) -> SessionRow:
    row = replace(row, expires_at_s=row.renewed_s, batch_seq=max(row.batch_seq, ticket.batch_seq))
    save_session(conn, tables, row)
    return row


def _replayed(
    conn: Connection, tables: ReplicaTables, row: SessionRow, ticket: Ticket, arrival: Arrival
) -> Applied:
    """The answer to a batch that was here before: its first one may never have arrived."""
    row = _renewed(conn, tables, row, ticket)
    ruv = read_vectors(conn).ruv
    covered = arrival.count_covered(ruv)
    csns = {text.decode() for text in arrival.csns.tolist()}
    rejected = tuple({each.csn: each for each in _open_letters(conn, tables) if each.csn in csns}.values())
    changes = arrival.batch.filter(pc.equal(arrival.batch.column("kind"), RecordKind.CHANGE.value))
    # An extinction that came since is counted as well: what was ignored then is not kept row by row.
    extinct = _by_rid(judge(read_index(conn, tables), changes).those_of(changes))
    return Applied(
        batch_seq=ticket.batch_seq,
        applied=0,
        covered=covered,
        rejected=rejected,
        halted=len(arrival.csns) - covered - len(rejected),
        ruv=ruv,
        expires_at=row.expires_at,
        replayed=True,
        extinct=extinct,
    )
