"""The copy of a total initialisation: all entries in the order of their keys, then what they stand for.

The pages are read while others write: the copy holds, of every key, its state at the session's first snapshot
or a later one, as the RUV proves that is read with each page. What was changed meanwhile lies above that
snapshot's RUV in the changelog, and follows in windows. Resumable behind the consumer's last entry.

The bound of purged tombstones that goes with it is the greatest of any page and of the end, over all
attempts: a supplier that is put back meanwhile has its tombstones again, the pages from before lack them.
It travels with each page too: the consumer keeps it beside its entries, where no other machine that is put
back can lose it.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import pyarrow as pa

from app.jobs.errors import JobFailed
from app.replication.peer.answers import PeerRefused, read_ruv
from app.replication.replica.replicas import replica_limits
from app.replication.supplier.batches import Outgoing
from app.replication.supplier.extinctions import require_bound_taken
from app.replication.supplier.ground import Ground
from app.replication.supplier.lease import Lease, begun_ruv
from app.replication.supplier.pipeline import Pipeline, Sent
from app.replication.supplier.record import Record
from app.replication.supplier.resuming import leave_copy
from app.stores.targets import target_of
from spark.formats.changes.batch import BATCH_BYTES
from spark.formats.csn import Csn
from spark.formats.part import Part, Prefix
from spark.replication.entry_batches import encode_entries
from spark.replication.records import Snapshot
from spark.replication.replica.entries import read_entries
from spark.replication.replica.layout import keep_filled
from spark.replication.replica.replica import snapshot
from spark.replication.supplier.backlog import count_fitting
from spark.replication.supplier.resumable import is_behind, is_below_bound
from spark.targets.connection import Connection, connect
from spark.targets.silence import application_name

UNIT_NAME: Final = "copy"
KEPT_WITHIN_S: Final = 5.0
TOTAL_RUV_DIFFERS: Final = "TOTAL_RUV_DIFFERS"


class CopyOutdated(Exception):
    """What follows this copy would be from below its bound: the session goes on with a new one."""


class BoundNotKept(Exception):
    """A page was read under a higher bound, which was not kept in time: the session acquires again."""


class PageBound:
    """The greatest bound that a page was read under, over all attempts.

    The reader moves it, and gives no page away before the caller has kept it with the session: whoever goes
    on behind that page knows it, also where this process dies and the supplier is put back.
    """

    def __init__(self, known: str | None) -> None:
        self.csn = None if known is None else Csn(known)
        self._guard = threading.Lock()
        self._is_kept = threading.Event()
        self._is_kept.set()

    def meet(self, csn: Csn | None) -> None:
        """Another page, or the end of all."""
        with self._guard:
            met = max(filter(None, (self.csn, csn)), default=None)
            if met != self.csn:
                self.csn = met
                self._is_kept.clear()

    def await_keeping(self) -> None:
        """Return when it is kept.

        Raises: BoundNotKept.
        """
        if not self._is_kept.wait(KEPT_WITHIN_S):
            raise BoundNotKept

    def keep(self, record: Record) -> None:
        """Let it outlive the attempt; in the thread that has the session."""
        if self._is_kept.is_set():
            return
        total, csn = record.total, self.csn
        assert total is not None, "entries travel in a total initialisation"
        record.set_total(total | {"buried": str(csn)})
        record.save()
        with self._guard:
            if self.csn == csn:
                self._is_kept.set()


def copy_entries(
    ground: Ground, lease: Lease, *, check: Callable[[], None], shown: Callable[[Snapshot], None]
) -> None:
    """Send what the consumer lacks of the copy, and complete it.

    Args:
        shown: told of the replica that a page was read of, before it leaves; any thread.
    Raises: CopyOutdated, BoundNotKept, PeerError, JobSignal.
    """
    record = ground.record
    assert record.total is not None, "noted before the acquire"
    if not lease.acquired.is_copied:
        # What is at or below it travels in the entries: trimming minds the rest from here on.
        ground.acknowledge(begun_ruv(ground), consumer_rid=lease.acquired.consumer.rid)
        _send(ground, lease, check, shown)
    completed = _complete(ground, lease)
    ground.bound.require(completed)
    record.ruv = dict(completed)
    record.set_total(record.total | {"is_copied": True})
    lease.generation, lease.has_ruv = record.total["generation"], True
    record.save(lease_until=lease.epoch.until)


def _send(ground: Ground, lease: Lease, check: Callable[[], None], shown: Callable[[Snapshot], None]) -> None:
    context, limits, total = ground.context, lease.acquired.limits, ground.record.total
    assert total is not None, "noted before the acquire"
    bound = PageBound(total.get("buried"))
    bound.meet(snapshot(ground.conn).replica.buried)
    bound.keep(ground.record)
    name = application_name(context.job.id, UNIT_NAME, context.job.token)

    def told(sent: Sent) -> None:
        ground.record.told_entries(sent)
        context.throttle.charge(rows=sent.batch.rows, byte_count=sent.body_bytes, worked_s=sent.worked_s)
        context.show_bounds()

    def look() -> None:
        bound.keep(ground.record)
        check()

    with connect(
        target_of(ground.store, context.settings, context.database),
        application_name=name,
        limits=replica_limits(context.settings),
        read_only=True,
    ) as conn:
        forget = context.on_cancel(lambda: conn.cancel())
        pipeline = Pipeline(
            send=lease.epoch.send,
            in_flight=min(ground.params.in_flight, limits.in_flight),
            first_seq=lease.next_seq,
            pace=context.throttle.delay_s,
        )
        source = _batches(
            conn,
            generation=str(total["generation"]),
            begun=begun_ruv(ground),
            after=lease.acquired.resume_after,
            rows_max=min(ground.params.batch_rows, limits.batch_rows),
            bytes_max=min(ground.params.batch_bytes, limits.batch_bytes),
            bound=bound,
            part=ground.part,
            shown=shown,
        )
        try:
            pipeline.run(source, told=told, check=look)
        finally:
            lease.next_seq = pipeline.next_unanswered
            forget()


def _complete(ground: Ground, lease: Lease) -> Mapping[int, Any]:
    """Tell the consumer that all entries are there.

    Its copy may have begun by an acquire whose answer was lost, at an earlier snapshot: that one counts,
    unless tombstones were purged since whose changes would follow it.

    Raises: CopyOutdated, PeerError, JobFailed.
    """
    total = ground.record.total
    assert total is not None, "noted before the acquire"
    seen, bound = snapshot(ground.conn), PageBound(total.get("buried"))
    bound.meet(seen.replica.buried)  # what was purged meanwhile is missing among the entries too
    require_bound_taken(bound.csn, lease.acquired.capabilities)
    complete = partial(
        ground.client.complete_total,
        ground.record.row.id,
        epoch=lease.epoch.epoch,
        batch_seq=lease.next_seq - 1,
        generation=total["generation"],
        buried=bound.csn,
    )
    try:
        _require_above(ground, lease, begun_ruv(ground), seen, bound)
        return complete(ruv=begun_ruv(ground))
    except PeerRefused as error:
        if error.code != TOTAL_RUV_DIFFERS or error.facts.get("generation") != total["generation"]:
            raise
        ruv = read_ruv(error.facts.get("ruv"))
        _require_above(ground, lease, ruv, seen, bound)
        ground.record.set_total(total | {"ruv": error.facts["ruv"]})
        return complete(ruv=ruv)


def _require_above(
    ground: Ground, lease: Lease, begun: Mapping[int, Csn], seen: Snapshot, bound: PageBound
) -> None:
    """A copy that is complete keeps the bound that it took; one that is not must not need what it refuses.

    Raises: CopyOutdated.
    """
    if lease.acquired.is_copied:
        return
    is_beyond = bound.csn is not None and bound.csn > max(begun.values(), default="")  # nobody would take it
    if is_beyond or is_below_bound(begun, seen, bound.csn):
        leave_copy(ground, seen)
        raise CopyOutdated


def require_followable(ground: Ground, seen: Snapshot) -> None:
    """Of a copy that is whole: what follows must not be from below the bound that it took along.

    It is where the supplier was put back to a state before its purge, and has heard of older changes since.

    Raises: CopyOutdated.
    """
    total = ground.record.total
    assert total is not None, "only a total initialisation is a copy"
    if is_below_bound(ground.record.ruv, seen, total.get("buried")):
        leave_copy(ground, seen)
        raise CopyOutdated


def _batches(
    conn: Connection,
    *,
    generation: str,
    begun: Mapping[int, Csn],
    after: tuple[bytes, bytes] | None,
    rows_max: int,
    bytes_max: int,
    bound: PageBound,
    part: Part | None = None,
    shown: Callable[[Snapshot], None] = lambda _: None,
) -> Iterator[Outgoing]:
    """Pages of entries as batches; an entry that is too large for one comes alone.

    Args:
        generation, begun: what each page must belong to, and hold at least.
        bound: moved, and kept, before a page is given away.
        part: which keys are copied; None: all.
        shown: told of the replica of each page, the last and empty one too, before it is given away.
    Raises: BoundNotKept; JobFailed: the replica was put back to a state before it, or before the last page,
        or made anew.
    """
    bytes_max = max(1, bytes_max - BATCH_BYTES)
    ruv = begun
    for within in (None,) if part is None else part.prefixes:  # in the order of the entries
        while True:
            page, seen = _page(
                conn, generation, ruv, after=after, rows_max=rows_max, bytes_max=bytes_max, within=within
            )
            ruv = seen.vectors.ruv
            shown(seen)
            bound.meet(seen.replica.buried)
            if not len(page):
                break
            bound.await_keeping()
            after = (page.column("database")[-1].as_py(), page.column("key")[-1].as_py())
            yield _outgoing(page, bound.csn)


def _page(
    conn: Connection,
    generation: str,
    begun: Mapping[int, Csn],
    *,
    after: tuple[bytes, bytes] | None,
    rows_max: int,
    bytes_max: int,
    within: Prefix | None,
) -> tuple[pa.RecordBatch, Snapshot]:
    """A page, and the replica of its moment: the next one is not read from a state before it."""
    with conn.transaction(read_only=True):
        keep_filled(conn)
        seen = snapshot(conn)
        if seen.replica.generation != generation or is_behind(seen.vectors.ruv, begun):
            detail = (
                "this replica was restored to a state before the beginning of its copy, or made anew: begin"
                " the session again with `--total`"
            )
            raise JobFailed("REPLICA_PUT_BACK", detail, retryable=True)
        rows = count_fitting(conn, after=after, rows_max=rows_max, bytes_max=bytes_max, within=within)
        database, prefix = (None, None) if within is None else (within.database, within.prefix)
        page = read_entries(conn, after=after, rows_max=rows, database=database, prefix=prefix)
        return page, seen


def _outgoing(page: pa.RecordBatch, buried: Csn | None) -> Outgoing:
    encode = partial(encode_entries, page, buried)
    return Outgoing(rows=page.num_rows, ranges={}, encode=encode, records=lambda: page)
