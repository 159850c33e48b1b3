"""Extinctions on their way to a consumer: what it takes, what it is told of, and those of a total copy.

Rules:
- no extinction is sent to a consumer that has not said that it takes them, and none is passed over: the
  session ends there, EXTINCTION_NOT_SUPPORTED, and nothing behind it is sent;
- a consumer is not emptied for a copy whose extinctions it would not take;
- the extinctions of a copy come before its entries;
- a copy without the tombstones that were purged goes to nobody who would not keep the bound that comes with
  it: TOMBSTONES_NOT_SUPPORTED.
Source: je-extinction-filter ("may not be called until all nodes have been upgraded"); design.md, Extinction.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa

from app.jobs.errors import JobFailed
from app.replication.replica.replicas import writer_turn
from app.replication.supplier.batches import Outgoing
from app.replication.supplier.ground import Ground
from app.replication.supplier.lease import Lease
from app.replication.supplier.pipeline import Pipeline, Sent
from spark.formats.changes.batch import BATCH_BYTES, encode_arrow, row_bytes
from spark.formats.csn import Csn
from spark.replication.consumer.extinctions import newest_by_rid, read_records
from spark.replication.replica.replica import snapshot
from spark.replication.sessions.begin import TOMBSTONES_CAPABILITY
from spark.replication.sessions.peers import CAPABILITY, PeerRole, note_peer
from spark.targets.connection import Connection, target_now

EXTINCTION_NOT_SUPPORTED: Final = "EXTINCTION_NOT_SUPPORTED"
TOMBSTONES_NOT_SUPPORTED: Final = "TOMBSTONES_NOT_SUPPORTED"


def note_consumer(ground: Ground, lease: Lease) -> None:
    """Keep what the consumer takes, as it said at acquire."""
    conn, acquired = ground.conn, lease.acquired
    with writer_turn(conn), conn.transaction():
        note_peer(
            conn,
            PeerRole.CONSUMER,
            ground.agreement.id,
            rid=acquired.consumer.rid,
            capabilities=acquired.capabilities,
            now_s=int(target_now(conn).timestamp()),
        )


def require_supported(ground: Ground, lease: Lease, conn: Connection) -> None:
    """Refuse to go on where the consumer lacks an extinction and takes none; over any connection.

    Raises: JobFailed.
    """
    if CAPABILITY in lease.acquired.capabilities:
        return
    acknowledged = ground.record.ruv
    lacking = {rid: csn for rid, csn in newest_by_rid(conn).items() if csn > acknowledged.get(rid, "")}
    if lacking:
        raise _unsupported(f"{min(lacking.values())} is one, and it lacks it")


def require_bound_taken(bound: Csn | None, capabilities: frozenset[str]) -> None:
    """Refuse a copy that lacks purged tombstones to a consumer that would not know that.

    Raises: JobFailed.
    """
    if bound is None or TOMBSTONES_CAPABILITY in capabilities:
        return
    detail = (
        "tombstones were purged here, and the consumer's version keeps no bound for what is older: upgrade it"
    )
    raise JobFailed(TOMBSTONES_NOT_SUPPORTED, detail)


def require_copy_supported(ground: Ground) -> None:
    """Before a consumer is emptied: refuse to copy extinctions, or a bound, to one that takes none.

    Raises: JobFailed, PeerError.
    """
    bound, has_extinctions = snapshot(ground.conn).replica.buried, bool(newest_by_rid(ground.conn))
    if bound is None and not has_extinctions:
        return
    capabilities = ground.client.ruv().capabilities
    require_bound_taken(bound, capabilities)
    if has_extinctions and CAPABILITY not in capabilities:
        raise _unsupported("a copy would leave them out")


def copy_extinctions(ground: Ground, lease: Lease, *, check: Callable[[], None]) -> None:
    """Send all extinctions that are known here; a consumer that goes on with its copy gets them again.

    Raises: PeerError, JobSignal.
    """
    records = read_records(ground.conn)
    if not records.num_rows:
        return
    limits, params = lease.acquired.limits, ground.params

    def told(sent: Sent) -> None:
        ground.record.told_extinctions(sent)
        refused = sent.acknowledged.rejected
        if refused:
            raise JobFailed(refused[0].code, f"the consumer refused an extinction: {refused[0].detail}")

    pipeline = Pipeline(
        send=lease.epoch.send, in_flight=1, first_seq=lease.next_seq, pace=ground.context.throttle.delay_s
    )
    source = _batches(
        records,
        rows_max=min(params.batch_rows, limits.batch_rows),
        bytes_max=max(1, min(params.batch_bytes, limits.batch_bytes) - BATCH_BYTES),
    )
    try:
        pipeline.run(source, told=told, check=check)
    finally:
        lease.next_seq = pipeline.next_unanswered


def _batches(records: pa.RecordBatch, *, rows_max: int, bytes_max: int) -> Iterator[Outgoing]:
    sizes = row_bytes(records).tolist()
    begin = 0
    while begin < records.num_rows:
        end, left = begin + 1, bytes_max - sizes[begin]
        while end < records.num_rows and end - begin < rows_max and left >= sizes[end]:
            left -= sizes[end]
            end += 1
        batch = records.slice(begin, end - begin)
        yield Outgoing(
            rows=batch.num_rows,
            ranges={},
            encode=partial(encode_arrow, batch),
            records=partial(_same, batch),
        )
        begin = end


def _same(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _unsupported(why: str) -> JobFailed:
    return JobFailed(EXTINCTION_NOT_SUPPORTED, f"the consumer does not take extinctions: {why}")
