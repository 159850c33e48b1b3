"""What the peers of a replica have said of extinctions: which they have, and whether they take them.

Rules:
- what a supplier has announced is missing until the RUV covers it;
- a peer that has never said that it takes extinctions takes none.
Source: design.md, Extinction; je-extinction-filter ("may not be called until all nodes have been upgraded").
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.errors import ReplicaMissing
from spark.replication.records import ReplicaRow, SessionMode, Vectors
from spark.replication.sessions.calls import Acquire
from spark.replication.sessions.row import SessionRow
from spark.targets.connection import Connection
from spark.targets.errors import TargetTablesMissing

CAPABILITY: Final = "EXTINCTION"


class PeerRole(StrEnum):
    """What a peer is to this replica."""

    CONSUMER = "CONSUMER"
    SUPPLIER = "SUPPLIER"


@dataclass(frozen=True, slots=True)
class LackingPeer:
    """A peer that takes no extinctions, as far as is known.

    Attributes:
        peer: the agreement of a consumer; of a supplier its store and replica id.
        rid: None: it was never heard of.
        heard: whether it has told what it takes.
    """

    role: PeerRole
    peer: str
    rid: int | None
    heard: bool


def note_announced(
    conn: Connection,
    tables: ReplicaTables,
    announced: Mapping[int, Csn],
    *,
    ruv: Mapping[int, Csn],
    forget: bool = False,
) -> None:
    """Keep what a supplier has announced and this replica lacks; in the transaction of the acquire.

    Args:
        forget: what was announced before belongs to another generation.
    """
    for rid, csn in conn.execute(f"select rid, csn from {tables.announced}"):
        if forget or csn <= ruv.get(rid, ""):
            conn.execute(f"delete from {tables.announced} where rid = :rid", {"rid": rid})
    conn.execute_many(
        f"insert into {tables.announced} as old (rid, csn) values (:rid, :csn)"
        " on conflict (rid) do update set csn = excluded.csn where excluded.csn > old.csn",
        [{"rid": rid, "csn": str(csn)} for rid, csn in sorted(announced.items()) if csn > ruv.get(rid, "")],
    )


def announced_missing(conn: Connection) -> dict[int, Csn]:
    """Extinctions that suppliers have and this replica has not: of each replica id the greatest.

    Raises: ReplicaMissing.
    """
    tables = tables_of(conn)
    sql = (
        f"select a.rid, a.csn from {tables.announced} a left join {tables.ruv} u on u.rid = a.rid"
        " where u.max_csn is null or u.max_csn < a.csn order by a.rid"
    )
    with _tables_needed():
        return {rid: Csn(csn) for rid, csn in conn.execute(sql)}


def note_peer(
    conn: Connection, role: PeerRole, peer: str, *, rid: int, capabilities: Iterable[str], now_s: int
) -> None:
    """Keep what a peer takes, as it said, unless it is known; `now_s` by the target's clock."""
    table = tables_of(conn).peers
    values = {"role": role.value, "peer": peer, "rid": rid, "told": json.dumps(sorted(capabilities))}
    same = "role = :role and peer = :peer and rid = :rid and capabilities = :told"
    if conn.execute(f"select 1 from {table} where {same}", values):
        return
    conn.execute(
        f"insert into {table} (role, peer, rid, capabilities, heard_at_s)"
        " values (:role, :peer, :rid, :told, :now_s) on conflict (role, peer) do update set"
        " rid = excluded.rid, capabilities = excluded.capabilities, heard_at_s = excluded.heard_at_s",
        values | {"now_s": now_s},
    )


def availability(conn: Connection) -> tuple[LackingPeer, ...]:
    """The peers that take no extinctions, or have not said so; none: extinctions are available.

    Known are the consumers of all agreements and every supplier that has ever acquired here, unless it was
    forgotten since.

    Raises: ReplicaMissing.
    """
    tables = tables_of(conn)
    sql = (
        "select 'CONSUMER', a.id, p.rid, p.capabilities"
        f" from {tables.agreements} a left join {tables.peers} p on p.role = 'CONSUMER' and p.peer = a.id"
        " where a.removed_at_s is null"
        f" union all select role, peer, rid, capabilities from {tables.peers} where role = 'SUPPLIER'"
        " order by 1, 2"
    )
    with _tables_needed():
        rows = conn.execute(sql)
    return tuple(
        LackingPeer(PeerRole(role), peer, rid, heard=told is not None)
        for role, peer, rid, told in rows
        if told is None or CAPABILITY not in json.loads(told)
    )


def role_of(conn: Connection, peer: str) -> PeerRole | None:
    """What a peer of this name is to the replica; None: no peer of `availability` has the name.

    Raises: ReplicaMissing.
    """
    tables = tables_of(conn)
    sql = (
        f"select role from {tables.peers} where role = 'SUPPLIER' and peer = :peer"
        f" union all select 'CONSUMER' from {tables.agreements} where id = :peer and removed_at_s is null"
        " order by 1 desc"  # a supplier first: only it is forgotten by its name
    )
    with _tables_needed():
        rows = conn.execute(sql, {"peer": peer})
    return PeerRole(rows[0][0]) if rows else None


def forget_supplier(conn: Connection, peer: str) -> bool:
    """Forget a supplier: it stands in the way of extinctions no more; whether it was known.

    Nor does it hold tombstones, where no change of it is known of.

    What it has announced stays: keys that an extinction which never came may cover remain MAYBE_EXTINCT,
    for the extinction may exist elsewhere and still arrive. One that acquires again is noted anew.

    Raises: ReplicaMissing.
    """
    sql = f"delete from {tables_of(conn).peers} where role = 'SUPPLIER' and peer = :peer"
    with _tables_needed():
        return conn.execute_count(sql, {"peer": peer}) > 0


def note_told(
    conn: Connection,
    tables: ReplicaTables,
    row: SessionRow,
    replica: ReplicaRow,
    vectors: Vectors,
    request: Acquire,
) -> None:
    """Keep what the supplier takes, and which extinctions it has that are missing here."""
    note_peer(
        conn,
        PeerRole.SUPPLIER,
        row.peer,
        rid=request.supplier_rid,
        capabilities=request.capabilities,
        now_s=int(row.now_s),
    )
    is_foreign = replica.generation is not None and replica.generation != request.generation
    if request.mode is SessionMode.TOTAL or not is_foreign:
        known = {} if request.mode is SessionMode.TOTAL else vectors.ruv
        note_announced(conn, tables, request.extinctions, ruv=known, forget=is_foreign)


@contextmanager
def _tables_needed() -> Iterator[None]:
    try:
        yield
    except TargetTablesMissing as error:
        raise ReplicaMissing(error.detail) from error
