"""What a replica shows of its history: at acquire, and beside the records of a batch."""

from __future__ import annotations

from collections.abc import Mapping

from spark.formats.arrow import pa
from spark.formats.changes.checks import rids_of
from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.proofs.chain import digests_of, follow, seed_of
from spark.replication.proofs.history_points import Where, find_points, read_records_between
from spark.replication.proofs.identity import known_keys, public_key_of, sign_head
from spark.replication.proofs.values import TAIL_MAX, BatchProof, Head, History, RidProof
from spark.targets.connection import Connection


def shown_history(
    conn: Connection,
    ruv: Mapping[int, Csn],
    own_rid: int,
    *,
    covers: Mapping[int, Csn] | None = None,
) -> History:
    """What this replica shows at a RUV of its own, now or of before.

    Args:
        covers: TOTAL: the consumer's RUV.
    """
    if not conn.in_transaction:
        with conn.transaction(read_only=True):
            return shown_history(conn, ruv, own_rid, covers=covers)
    tables = tables_of(conn)
    points = find_points(conn, ruv)
    heads = {}
    for rid, csn in ruv.items():
        chain, signature = points[rid].chain, None
        if chain is not None:
            if rid == own_rid:
                signature = sign_head(conn, tables, rid, csn, chain)
            else:
                signature = _kept_signature(conn, tables, rid, csn)
        heads[rid] = Head(csn, chain, signature)
    found = find_points(conn, covers or {})
    return History(
        public_key_of(conn, tables),
        heads,
        known_keys(conn, tables),
        {
            rid: Head((covers or {})[rid], point.chain)
            for rid, point in found.items()
            if point.where is Where.HERE
        },
    )


def proof_of(conn: Connection, batch: pa.RecordBatch) -> BatchProof:
    """What goes beside the records of a batch that was read from this changelog; no transaction is open.

    Only reads.
    """
    tables = tables_of(conn)
    with conn.transaction(read_only=True):
        rows = conn.execute(f"select rid from {tables.replica}")
        own_rid = rows[0][0] if rows else None
        prevs: dict[int, str | None] = {}
        lasts: dict[int, Csn] = {}
        rids = rids_of(batch.column("csn")).tolist()
        for rid, csn, prev in zip(
            rids, batch.column("csn").to_pylist(), batch.column("prev").to_pylist(), strict=True
        ):
            prevs.setdefault(rid, prev)
            lasts[rid] = Csn(csn)
        befores = find_points(conn, {rid: prev for rid, prev in prevs.items() if prev is not None})
        ends = find_points(conn, lasts)
        found = {}
        for rid, last in lasts.items():
            before = seed_of(rid) if prevs[rid] is None else befores[rid].chain
            chain = ends[rid].chain
            signed, tail = _signed_from(conn, tables, rid, last, chain, is_own=rid == own_rid)
            found[rid] = RidProof(before, chain, signed, tail)
    return BatchProof(found)


def _signed_from(
    conn: Connection, tables: ReplicaTables, rid: int, last: Csn, chain: bytes | None, *, is_own: bool
) -> tuple[Head | None, tuple[bytes, ...]]:
    if chain is None:
        return None, ()
    if is_own:
        return Head(last, chain, sign_head(conn, tables, rid, last, chain)), ()
    rows = conn.execute(
        f"select csn, signature from {tables.signed_heads} where rid = :rid and csn >= :csn"
        " order by csn limit 1",
        {"rid": rid, "csn": str(last)},
    )
    if not rows:
        return None, ()
    csn, signature = rows[0]
    between = read_records_between(conn, rid, after=last, upto=csn, rows_max=TAIL_MAX + 1)
    if between.num_rows > TAIL_MAX:
        return None, ()
    tail = tuple(digests_of(between))
    return Head(Csn(csn), follow(chain, tail), bytes(signature)), tail


def _kept_signature(conn: Connection, tables: ReplicaTables, rid: int, csn: str) -> bytes | None:
    rows = conn.execute(
        f"select signature from {tables.signed_heads} where rid = :rid and csn = :csn",
        {"rid": rid, "csn": str(csn)},
    )
    return bytes(rows[0][0]) if rows else None
