"""Proofs of histories: what a replica shows, and what it believes of what another one shows.

Invariants:
- two histories of one replica id are one as far as their values at the lower of the two CSNs are equal; where
  they are not, both sides are told DIVERGED, and nothing is sent or removed;
- that this replica has lost own changes is believed only of a head that its own key has signed;
- a replica id has one key: who comes with another one is another replica of that number, DUPLICATE_RID;
- records of a replica id whose key is known are applied only as far as a head that this key has signed.

A CSN without a value comes from before there were chains: then it counts that the other side has it at all.
Source: decisions/0016.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark.formats.arrow import pa
from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.proofs.chain import chain_of, follow
from spark.replication.proofs.history_points import (
    Point,
    Where,
    adopt_point,
    find_points,
    head_before,
    heads_of,
    put_point,
)
from spark.replication.proofs.identity import is_signed, known_keys, learn_key, public_key_of
from spark.replication.proofs.values import BatchProof, Head, History, RidProof
from spark.replication.records import Snapshot
from spark.replication.session_errors import (
    ChangesUnproven,
    DuplicateRid,
    HistoryDiverged,
    HistoryUnproven,
)
from spark.targets.connection import Connection


@dataclass(frozen=True, slots=True)
class Compared:
    """Two histories, replica id by replica id.

    Attributes:
        diverged: of these the other side has another history.
        unproven: of these the lower CSN has left this changelog, and nothing is known of it.
        lacking: of these no value is known here at the other side's head, from which the chain may begin.
    """

    diverged: tuple[int, ...] = ()
    unproven: tuple[int, ...] = ()
    lacking: Mapping[int, Head] = field(default_factory=dict)


# -- what is believed at acquire


def check_identity(
    conn: Connection, tables: ReplicaTables, own_rid: int, peer_rid: int, shown: History
) -> None:
    """Refuse a peer that is, or knows, another replica of a number that this one knows.

    Inside the caller's transaction; keys that are new are learned.

    Raises: DuplicateRid.
    """
    own_key, known = public_key_of(conn, tables), known_keys(conn, tables)
    told = {**shown.keys, peer_rid: shown.key}
    for rid, key in sorted(told.items()):
        ours = own_key if rid == own_rid else known.get(rid)
        if ours is not None and ours != key:
            detail = (
                f"two replicas bear the number {rid}: their keys are {ours.hex()[:16]} and {key.hex()[:16]}"
            )
            raise DuplicateRid(detail, {"rid": rid, "keys": [ours.hex(), key.hex()]})
    for rid, key in sorted(told.items()):
        if rid != own_rid and rid not in known:
            learn_key(conn, tables, rid, key)


def check_own_claim(
    conn: Connection, tables: ReplicaTables, own_rid: int, claimed: Csn, shown: History
) -> None:
    """Refuse a claim that this replica made changes that it lacks, unless its own key has signed it.

    Raises: HistoryUnproven.
    """
    head = shown.heads.get(own_rid)
    if (
        head is not None
        and head.csn == claimed
        and head.chain is not None
        and head.signature is not None
        and is_signed(public_key_of(conn, tables), own_rid, head.csn, head.chain, head.signature)
    ):
        return
    detail = f"the peer claims changes of this replica up to {claimed}, which this replica has not signed"
    raise HistoryUnproven(detail, {"rids": [own_rid]})


def compare_heads(conn: Connection, ruv: Mapping[int, Csn], shown: Mapping[int, Head]) -> Compared:
    """Compare where the other side is not ahead of this replica: its heads with the values here.

    Of a replica id that only one of them knows there is nothing to compare.
    """
    wanted = {rid: head.csn for rid, head in shown.items() if rid in ruv and head.csn <= ruv[rid]}
    points = find_points(conn, wanted)
    diverged, unproven, lacking = [], [], {}
    for rid in sorted(wanted):
        point, head = points[rid], shown[rid]
        if point.where is Where.FOREIGN:
            diverged.append(rid)
        elif point.where is not Where.HERE:
            unproven.append(rid)
        elif point.chain is None:
            lacking[rid] = head
        elif head.chain is not None and point.chain != head.chain:
            diverged.append(rid)
    return Compared(tuple(diverged), tuple(unproven), lacking)


def require_one_history(found: Compared) -> None:
    """Raise where histories have parted.

    Raises: HistoryDiverged.
    """
    if found.diverged:
        rids = ", ".join(map(str, found.diverged))
        detail = f"the two replicas have different histories of the changes of {rids}"
        raise HistoryDiverged(detail, {"rids": list(found.diverged)})


def require_covered(conn: Connection, ruv: Mapping[int, Csn], shown: History) -> None:
    """Raise unless the supplier of a TOTAL has everything that this replica has.

    Raises: HistoryDiverged.
    """
    heads = heads_of(conn, tables_of(conn))
    parted = []
    for rid, csn in ruv.items():
        theirs, chain = shown.covers.get(rid), heads.get(rid)
        is_there = theirs is not None and theirs.csn == csn
        if not is_there or (chain is not None and theirs is not None and theirs.chain not in (None, chain)):
            parted.append(rid)
    if parted:
        rids = ", ".join(map(str, sorted(parted)))
        detail = f"the replica holds changes of {rids} that are not in the supplier's history"
        raise HistoryDiverged(detail, {"rids": sorted(parted)})


def settle_beginnings(conn: Connection, found: Compared) -> None:
    """Begin the chains that an older version has not kept, at the heads that the other side has."""
    for rid, head in found.lacking.items():
        adopt_point(conn, rid, head.csn, head.chain)


def judge_consumer(
    conn: Connection,
    seen: Snapshot,
    consumer_rid: int,
    shown: History | None,
    ruv: Mapping[int, Csn],
    *,
    is_trusted: bool = False,
) -> tuple[int, ...]:
    """Compare a consumer that has given its lease with this supplier; no transaction is open.

    Args:
        seen: this replica, after the acquire.
        shown: the consumer's; None: it proves nothing, and an admin lets it.
        ruv: the consumer's.
        is_trusted: an admin lets it speak for this replica without its signature.
    Returns: replica ids that cannot be compared.
    Raises: DuplicateRid, HistoryDiverged; HistoryUnproven: it has own changes of this replica that this one
        has not signed.
    """
    if shown is None:
        return ()
    tables, own_rid = tables_of(conn), seen.replica.rid
    with conn.transaction():
        check_identity(conn, tables, own_rid, consumer_rid, shown)
        heads = {rid: head for rid, head in shown.heads.items() if ruv.get(rid) == head.csn}
        found = compare_heads(conn, seen.vectors.ruv, heads)
        require_one_history(found)
        theirs = ruv.get(own_rid)
        if not is_trusted and theirs is not None and theirs > seen.vectors.ruv.get(own_rid, ""):
            check_own_claim(conn, tables, own_rid, theirs, shown)
        keep_signatures(conn, tables, heads, own_rid=own_rid)
    settle_beginnings(conn, found)
    # Below the purge point the consumer needs a total initialisation anyway; at it there is a point.
    return found.unproven


@dataclass(frozen=True, slots=True)
class Judged:
    """What looking alone tells of a consumer's history; see Compared."""

    is_duplicate: bool
    diverged: tuple[int, ...]
    unproven: tuple[int, ...]


def judge_remote(
    conn: Connection,
    asked: Mapping[int, Csn],
    points: Mapping[int, Point],
    peer_rid: int,
    shown: History | None,
    ruv: Mapping[int, Csn],
) -> Judged:
    """Compare with a consumer without a session, inside a read transaction.

    Args:
        asked: this replica's CSNs of which the consumer was ahead; points: what it said of them.
    """
    if shown is None:
        return Judged(False, (), tuple(sorted(ruv)))
    tables = tables_of(conn)
    [(own_rid,)] = conn.execute(f"select rid from {tables.replica}")
    known = known_keys(conn, tables) | {own_rid: public_key_of(conn, tables)}
    told = {**shown.keys, peer_rid: shown.key}
    is_duplicate = peer_rid == own_rid or any(key != known.get(rid, key) for rid, key in told.items())
    rows = conn.execute(f"select rid, max_csn from {tables.ruv} where max_csn is not null")
    found = compare_heads(conn, {rid: Csn(csn) for rid, csn in rows}, shown.heads)
    diverged, unproven = set(found.diverged), set(found.unproven)
    ours = find_points(conn, asked)
    for rid in asked:
        there, value = points.get(rid, Point(Where.TRIMMED)), ours[rid].chain
        is_other = there.chain is not None and value is not None and there.chain != value
        if there.where is Where.FOREIGN or is_other:
            diverged.add(rid)
        elif there.where is not Where.HERE:
            unproven.add(rid)
    return Judged(is_duplicate, tuple(sorted(diverged)), tuple(sorted(unproven)))


def keep_signatures(
    conn: Connection, tables: ReplicaTables, heads: Mapping[int, Head], *, own_rid: int
) -> None:
    """Keep what others have signed of histories that are here, in the caller's transaction."""
    known = known_keys(conn, tables)
    wanted = {
        rid: head
        for rid, head in heads.items()
        if rid != own_rid and rid in known and head.signature is not None and head.chain is not None
    }
    points = find_points(conn, {rid: head.csn for rid, head in wanted.items()})
    for rid, head in wanted.items():
        assert head.chain is not None, "looked at above"
        assert head.signature is not None, "looked at above"
        if points[rid].chain == head.chain and is_signed(
            known[rid], rid, head.csn, head.chain, head.signature
        ):
            _put_signature(conn, tables, rid, head)


def _put_signature(conn: Connection, tables: ReplicaTables, rid: int, head: Head) -> None:
    conn.execute(
        f"insert into {tables.signed_heads} (rid, csn, signature) values (:rid, :csn, :signature)"
        " on conflict (rid, csn) do nothing",
        {"rid": rid, "csn": str(head.csn), "signature": head.signature},
    )


def keep_copied(
    conn: Connection,
    tables: ReplicaTables,
    heads: Mapping[int, Head],
    ruv: Mapping[int, Csn],
    *,
    own_rid: int,
) -> None:
    """Let the chains of a copy go on from its supplier's values, in the caller's transaction."""
    copied = {rid: head for rid, head in heads.items() if ruv.get(rid) == head.csn}
    for rid, head in copied.items():
        if head.chain is not None:
            put_point(conn, tables, rid, head.csn, head.chain)
    keep_signatures(conn, tables, copied, own_rid=own_rid)


# -- what is believed of a batch


def prove_batch(
    conn: Connection,
    tables: ReplicaTables,
    own_rid: int,
    records: pa.RecordBatch,
    lasts: Mapping[int, Csn],
    floors: Mapping[int, Csn],
    proof: BatchProof | None,
    *,
    is_trusted: bool,
) -> pa.Array:
    """The chain of the records of a batch that are new here, in the transaction that applies them.

    Args:
        records: all new ones of the replica ids of which some are applied: what is refused is proved too.
        lasts: of each replica id the last one that is applied.
        floors: the RUV before them.
        proof: None: the supplier shows none; it is believed only of replica ids whose key is unknown.
        is_trusted: an admin lets this supplier bring changes of others without their signature.
    Raises: HistoryDiverged, ChangesUnproven.
    """
    heads = heads_of(conn, tables, lasts)
    shown = {} if proof is None else proof.rids
    before: dict[int, bytes | None] = {}
    for rid in lasts:
        value, told = head_before(heads, rid), shown.get(rid)
        if value is None and told is not None and told.before is not None:
            # From before there was a chain: it begins where both sides are.
            value = told.before
            put_point(conn, tables, rid, floors[rid], value)
        before[rid] = value
    chain, ends = chain_of(records, before)
    keys = known_keys(conn, tables) | {own_rid: public_key_of(conn, tables)}
    for rid, last in lasts.items():
        told = shown.get(rid)
        _check_last(rid, ends[rid], told)
        if rid in keys and not is_trusted:
            signed = _require_signed(rid, ends[rid], told, keys[rid])
            if signed.csn == last and rid != own_rid:
                _put_signature(conn, tables, rid, signed)
    return chain


def _check_last(rid: int, value: bytes | None, told: RidProof | None) -> None:
    if value is not None and told is not None and told.last is not None and value != told.last:
        detail = f"the records of {rid} do not lead from this replica's history to the supplier's"
        raise HistoryDiverged(detail, {"rids": [rid]})


def _require_signed(rid: int, value: bytes | None, told: RidProof | None, key: bytes) -> Head:
    signed = None if told is None else told.signed
    if signed is None or told is None or signed.signature is None:
        detail = f"changes of {rid} come without the signature of that replica"
        raise ChangesUnproven(detail, {"rids": [rid]})
    end = follow(value, told.tail)
    if end is None or not is_signed(key, rid, signed.csn, end, signed.signature):
        detail = f"changes of {rid} are not those that this replica has signed"
        raise ChangesUnproven(detail, {"rids": [rid]})
    return signed
