"""From the acquire of a consumer to its release.

Invariants:
- an epoch is noted under the job's token before anything is sent in it: an attempt that has lost its lease
  sends nothing;
- the lease is given back, or noted as perhaps still held, before the job waits, rests or ends.

A TOTAL that was released as complete may have lost the answer. It is asked for again in the same epoch, never
acquired again: a consumer that is complete would be emptied by that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from app.jobs.errors import JobFailed
from app.kit.durations import format_duration
from app.replication.peer.answers import Acquired, PeerError, PeerRefused, read_ruv, shown_ruv
from app.replication.peer.client import PROTOCOL
from app.replication.peer.clock import PeerClockSkewed
from app.replication.replica.replicas import writer_turn
from app.replication.rows import ReplicationSession, SessionState
from app.replication.supplier.ground import Ground
from app.replication.supplier.history import WITHOUT_PROOFS, introduced, introduced_history
from app.replication.supplier.parts import refusal_of_part, require_part_taken
from app.replication.supplier.resuming import (
    begin_anew,
    granted,
    is_foreign,
    is_of_before,
    note_beginning,
    resuming_body,
)
from app.replication.supplier.sending import Epoch
from app.replication.supplier.signals import BATCH_GAP, OVER, REPLICA_BUSY, TOTAL_INCOMPLETE
from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.consumer.extinctions import newest_by_rid
from spark.replication.csn_generator import ClockSkewExceeded, next_csn
from spark.replication.records import ReplicaStatus, SessionMode, Snapshot
from spark.replication.replica.replica import adjust_generator, mark_restored
from spark.replication.session_errors import (
    ConsumerAhead,
    DiscardNotGranted,
    HistoryDiverged,
    ProofsMissing,
)
from spark.replication.sessions.begin import CAPABILITIES
from spark.replication.supplier.backlog import count_missing
from spark.replication.supplier.decide import Consumer, Window

NEEDED: Final = frozenset({"CHANGE", "ARROW_ZSTD"})
LACKING: Final = frozenset({BATCH_GAP, TOTAL_INCOMPLETE, "TOTAL_NOT_UNDER_WAY"})
"""What a consumer says of a release where it was put back since: it goes on from what it has."""
JUDGED_BY_RUV: Final = frozenset({ConsumerAhead.code, HistoryDiverged.code, DiscardNotGranted.code})


@dataclass(slots=True)
class Lease:
    """A granted lease, and what is known of the consumer in it.

    Attributes:
        generation: the consumer's; None where it has none.
        has_ruv: whether it has a RUV at all.
        next_seq: the number of the next batch.
    """

    epoch: Epoch
    acquired: Acquired
    generation: str | None
    has_ruv: bool
    next_seq: int = 1


def acquire(ground: Ground, seen: Snapshot) -> Lease:
    """Ask for the lease, and note it before anything is sent.

    A copy whose parts this replica does not hold any more is begun anew, by a second acquire.

    Raises: PeerError, JobFailed.
    """
    require_part_taken(ground)
    if ground.params.mode == SessionMode.TOTAL:
        note_beginning(ground, seen)
    try:
        lease = _acquired(ground, seen)
    except PeerRefused as refused:
        if refused.code not in JUDGED_BY_RUV or not is_of_before(ground, seen):
            raise
        # Another supplier may have brought it level since: it is judged by what this one has now.
        begin_anew(ground, seen)
        lease = _acquired(ground, seen)
    total = ground.record.total
    if total is not None and not total["is_complete"] and is_foreign(ground, seen, lease.acquired):
        begin_anew(ground, seen)
        lease = _acquired(ground, seen)
        if is_foreign(ground, seen, lease.acquired):  # a consumer of a version that knows no such word
            give_back(ground, lease.epoch)
            detail = "this replica was restored since its copy began, and the consumer goes on with it"
            raise JobFailed("REPLICA_PUT_BACK", detail, retryable=True)
    return lease


def _acquired(ground: Ground, seen: Snapshot) -> Lease:
    record, context = ground.record, ground.context
    before = (record.row.epoch, dict(record.ruv))
    acquired = _granted(ground, _introduction(ground, seen))
    lease_s = context.settings.replication_lease_s
    epoch = Epoch(
        ground.client, session_id=record.row.id, epoch=acquired.epoch, lease_s=lease_s, clock=context.clock
    )
    _require_in_time(ground, acquired, epoch)
    refused = refusal_of_part(
        ground, acquired, is_total=record.total is not None and not record.total["is_complete"]
    )
    if refused is not None:
        give_back(ground, epoch)
        raise refused
    if record.total is not None:
        record.set_total(granted(record.total, acquired))
    record.acquired(acquired, lease_until=context.clock.now() + timedelta(seconds=lease_s))
    _count_unheard(ground, acquired, before)
    lacking = NEEDED - acquired.capabilities
    if lacking:
        give_back(ground, epoch)
        detail = f"the consumer does not take {', '.join(sorted(lacking))}"
        raise JobFailed("CAPABILITY_MISSING", detail)
    if acquired.history is None and not context.settings.replication_unproven_peers:
        give_back(ground, epoch)
        raise JobFailed(ProofsMissing.code, WITHOUT_PROOFS)
    consumer = acquired.consumer
    if record.total is not None and not record.total["is_complete"]:
        ground.take_back(record.ruv if acquired.is_copied else begun_ruv(ground))
    elif consumer.ruv is not None and consumer.generation == seen.replica.generation:
        ground.take_back(consumer.ruv)
    return Lease(epoch, acquired, consumer.generation, consumer.ruv is not None)


def _granted(ground: Ground, introduction: dict[str, Any]) -> Acquired:
    """Ask for the lease; again where only a session of this agreement that has ended still holds it."""
    try:
        return ground.client.acquire(introduction)
    except PeerRefused as busy:
        if busy.code != REPLICA_BUSY or not _give_back_for(ground, busy.facts.get("holder")):
            raise
    return ground.client.acquire(introduction)


def _require_in_time(ground: Ground, acquired: Acquired, epoch: Epoch) -> None:
    """Believe no consumer whose changes are too far ahead; nothing of it is noted, its lease is given back.

    Raises: PeerClockSkewed.
    """
    try:
        ground.bound.require(acquired.consumer.ruv)
    except PeerClockSkewed:
        give_back(ground, epoch)
        raise


def _give_back_for(ground: Ground, holder: object) -> bool:
    """Release what an ended session could not: its consumer was away at that moment. Whether it was one."""
    if not isinstance(holder, str):
        return False
    row = ground.context.read(lambda db: db.get(ReplicationSession, holder))
    if row is None or (row.agreement_id, row.state) != (ground.agreement.id, SessionState.ENDED):
        return False
    ground.client.release(row.id, epoch=row.epoch)
    return True


def _introduction(ground: Ground, seen: Snapshot) -> dict[str, Any]:
    """The body of acquire.

    Raises: JobFailed: our clock is behind what was given already.
    """
    now_s = int(ground.context.clock.now().timestamp())
    try:
        csn_now, _ = next_csn(seen.generator, now_s=now_s)
    except ClockSkewExceeded as error:
        raise JobFailed("CLOCK_SKEW", error.detail) from error
    total = ground.record.total
    is_total = total is not None and not total["is_complete"]
    ruv = shown_ruv(seen.vectors.ruv) if total is None or not is_total else total["ruv"]
    return {
        "protocol": PROTOCOL,
        "session_id": ground.record.row.id,
        "mode": SessionMode.TOTAL if is_total else SessionMode.INCREMENTAL,
        "supplier": {
            "store": ground.store.id,
            "rid": seen.replica.rid,
            "generation": seen.replica.generation,
            "ruv": ruv,
            "csn_now": str(csn_now),
            "capabilities": list(CAPABILITIES),
            "extinctions": shown_ruv(newest_by_rid(ground.conn)),
            "history": introduced_history(ground, seen, read_ruv(ruv), is_total=is_total).document(),
            "signature": introduced(ground, seen, csn_now),
            **({} if seen.replica.part is None else {"holds": seen.replica.part.document()}),
        },
        "lease": format_duration(timedelta(seconds=ground.context.settings.replication_lease_s)),
        "discard_consumer_changes": ground.params.discard_consumer_changes,
        **({"resuming": resuming_body(total)} if total is not None and is_total else {}),
        **({} if ground.part is None else {"part": ground.part.document()}),
    }


def _count_unheard(ground: Ground, acquired: Acquired, before: tuple[int, Mapping[int, Csn]]) -> None:
    """Find what the consumer got in our last epoch without our hearing of it.

    Its epochs follow each other: one more than ours means that nobody else has brought it anything.
    """
    epoch, known = before
    record = ground.record
    if epoch == 0 or acquired.epoch != epoch + 1:
        return
    unheard = {}
    for key, (_, upto) in record.row.windows.items():
        rid, reached = int(key), record.ruv.get(int(key))
        if reached is not None and reached > known.get(rid, ""):
            unheard[rid] = Window(known.get(rid), min(reached, Csn(upto)))
    if unheard:
        record.found_applied(count_missing(ground.conn, unheard))


def consumer_side(ground: Ground, lease: Lease) -> Consumer:
    """The consumer as the decision takes it: with its RUV as it was last acknowledged."""
    return Consumer(dict(ground.record.ruv) if lease.has_ruv else None, lease.generation)


def compare_own(ground: Ground, lease: Lease, seen: Snapshot) -> None:
    """Follow the consumer's clock; and one that has more of our own changes than we knows of a loss here.

    Args:
        seen: a snapshot taken after the acquire.
    Raises: JobFailed.
    """
    ruv = ground.record.ruv
    if lease.generation != seen.replica.generation or not ruv:
        return
    theirs, own = ruv.get(seen.replica.rid), seen.vectors.ruv.get(seen.replica.rid)
    if theirs is not None and theirs > (own or ""):
        with writer_turn(ground.conn):
            mark_restored(ground.conn, upto=theirs)
        detail = f"the consumer has own changes of this replica up to {theirs}, here they end at {own}"
        raise JobFailed("REPLICA_NOT_ONLINE", detail, retryable=True)
    remote = max(ruv.values())
    if remote.timestamp < seen.generator.timestamp:
        return
    now_s = int(ground.context.clock.now().timestamp())
    with writer_turn(ground.conn), ground.conn.transaction():
        adjust_generator(ground.conn, tables_of(ground.conn), remote=remote, now_s=now_s)


# -- the end


def release_complete(ground: Ground, lease: Lease) -> None:
    """End a total initialisation: the consumer is readable from now on.

    Raises: PeerError: whether it is, is asked again before anything else.
    """
    total = ground.record.total
    assert total is not None, "only a total initialisation is completed"
    answered = lease.next_seq - 1
    ground.record.set_total(total | {"is_releasing": True, "batches_answered": answered})
    ground.record.save()
    session_id = ground.record.row.id
    ground.client.release(session_id, epoch=lease.epoch.epoch, complete=True, batch_seq=answered)
    _note_complete(ground)


def confirm_release(ground: Ground) -> None:
    """Ask again for a release as complete whose answer was lost.

    Raises: PeerError.
    """
    total, row = ground.record.total, ground.record.row
    if total is None or not total["is_releasing"] or total["is_complete"]:
        return
    try:
        answered = total.get("batches_answered", 0)
        ground.client.release(row.id, epoch=row.epoch, complete=True, batch_seq=answered)
    except PeerRefused as error:
        if error.code not in OVER and error.code not in LACKING:
            raise
        if error.code in LACKING or ground.client.ruv().status == ReplicaStatus.INITIALIZING:
            ground.record.set_total(total | {"is_releasing": False})
            ground.record.save()
            return
    _note_complete(ground)


def _note_complete(ground: Ground) -> None:
    total = ground.record.total
    assert total is not None, "only a total initialisation is completed"
    ground.record.set_total(total | {"is_releasing": False, "is_complete": True})
    ground.record.released()


def give_back(ground: Ground, epoch: Epoch) -> None:
    """Release what is held, if the consumer answers; else the row keeps that it may be held."""
    try:
        ground.client.release(epoch.session_id, epoch=epoch.epoch)
    except PeerError:
        return
    ground.record.released()


def begun_ruv(ground: Ground) -> dict[int, Csn]:
    """The RUV that a total initialisation stands for."""
    total = ground.record.total
    assert total is not None, "only a total initialisation has one"
    return read_ruv(total["ruv"])
