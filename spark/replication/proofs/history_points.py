"""Values of chains as a replica keeps them: with each record, and at points whose records are not here.

A point is at home in three ways: its record is in the changelog; or it is a purge point or the state of a
copy (`points`); or it was here and was trimmed, and nothing is known of it any more. A CSN above the purge
point that has no record was never a change of this history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark.formats.arrow import pa
from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.proofs.chain import base_of, chain_of, seed_of
from spark.replication.records import record_schema
from spark.targets.connection import Connection

_PAGE_ROWS: Final = 5_000
_AT_ONCE: Final = 200


class Where(StrEnum):
    """How a CSN stands to a history."""

    HERE = "HERE"
    TRIMMED = "TRIMMED"
    FOREIGN = "FOREIGN"
    AHEAD = "AHEAD"


@dataclass(frozen=True, slots=True)
class Point:
    """A CSN in a history; `chain` is None where it is HERE from before there was a chain."""

    where: Where
    chain: bytes | None = None


def heads_of(
    conn: Connection, tables: ReplicaTables, rids: Iterable[int] | None = None
) -> dict[int, bytes | None]:
    """The value of the chain at the RUV, of each replica id that has one."""
    where = "" if rids is None else f" and u.rid in ({', '.join(map(str, sorted(rids))) or 'null'})"
    rows = conn.execute(
        f"select u.rid, c.chain, p.chain from {tables.ruv} u"
        f" left join {tables.changelog} c on c.rid = u.rid and c.csn = u.max_csn"
        f" left join {tables.points} p on p.rid = u.rid and p.csn = u.max_csn"
        f" where u.max_csn is not null{where}"
    )
    return {rid: _bytes(logged if logged is not None else kept) for rid, logged, kept in rows}


def head_before(heads: Mapping[int, bytes | None], rid: int) -> bytes | None:
    """The value that a replica's next change follows: of `heads_of`, or the beginning of all."""
    return heads[rid] if rid in heads else seed_of(rid)


def find_points(conn: Connection, wanted: Mapping[int, str]) -> dict[int, Point]:
    """How one CSN of each replica id stands to this history; replica ids without a change here are AHEAD.

    In the caller's transaction, or in one of its own.
    """
    if not conn.in_transaction:
        with conn.transaction(read_only=True):
            return find_points(conn, wanted)
    tables = tables_of(conn)
    found: dict[int, Point] = {}
    items = sorted(wanted.items())
    for begin in range(0, len(items), _AT_ONCE):
        some = items[begin : begin + _AT_ONCE]
        pairs = " union all ".join(f"select {int(rid)} as rid, '{Csn(csn)}' as csn" for rid, csn in some)
        rows = conn.execute(
            "select w.rid, w.csn, u.max_csn, u.purged_csn, c.csn, c.chain, p.chain"
            f" from ({pairs}) w left join {tables.ruv} u on u.rid = w.rid"
            f" left join {tables.changelog} c on c.rid = w.rid and c.csn = w.csn"
            f" left join {tables.points} p on p.rid = w.rid and p.csn = w.csn"
        )
        for rid, csn, greatest, purged, logged, chain, kept in rows:
            found[rid] = _point(csn, greatest, purged, logged, chain, kept)
    return found


def _point(
    csn: str,
    greatest: str | None,
    purged: str | None,
    logged: str | None,
    chain: bytes | None,
    kept: bytes | None,
) -> Point:
    if greatest is None or csn > greatest:
        return Point(Where.AHEAD)
    if logged is not None or kept is not None:
        return Point(Where.HERE, _bytes(chain if chain is not None else kept))
    if csn == purged:
        return Point(Where.HERE)
    return Point(Where.TRIMMED if purged is not None and csn < purged else Where.FOREIGN)


def put_point(conn: Connection, tables: ReplicaTables, rid: int, csn: str, chain: bytes) -> None:
    """Keep a value whose record goes, or never comes; in the caller's transaction. A known one stays."""
    conn.execute(
        f"insert into {tables.points} (rid, csn, chain) values (:rid, :csn, :chain)"
        " on conflict (rid, csn) do nothing",
        {"rid": rid, "csn": str(csn), "chain": chain},
    )


def keep_trimmed(conn: Connection, tables: ReplicaTables, rid: int, csn: str) -> None:
    """Keep the value at a point that is about to leave the changelog, in the transaction that deletes."""
    conn.execute(
        f"insert into {tables.points} (rid, csn, chain) select rid, csn, chain from {tables.changelog}"
        " where rid = :rid and csn = :csn and chain is not null on conflict (rid, csn) do nothing",
        {"rid": rid, "csn": str(csn)},
    )
    conn.execute(
        f"delete from {tables.signed_heads} where rid = :rid and csn < :csn", {"rid": rid, "csn": str(csn)}
    )


def adopt_point(conn: Connection, rid: int, csn: str, chain: bytes | None) -> None:
    """Begin the chain of a history from before there was one, at a CSN that both sides have.

    Args:
        chain: the other side's value there; None: it knows none either, and both begin here.
    """
    tables = tables_of(conn)
    with conn.transaction():
        put_point(conn, tables, rid, csn, chain or base_of(rid, csn))
        conn.execute(
            f"update {tables.changelog} set chain = :chain where rid = :rid and csn = :csn and chain is null",
            {"rid": rid, "csn": str(csn), "chain": chain or base_of(rid, csn)},
        )
    _fill(conn, tables, rid)


def fill_chains(conn: Connection) -> None:
    """Compute what the records of an older version lack, page by page, each in a transaction.

    Only where the history is whole from its first change: what was trimmed cannot be proved.
    """
    tables = tables_of(conn)
    for (rid,) in conn.execute(f"select rid from {tables.ruv} where max_csn is not null order by rid"):
        _fill(conn, tables, rid)


def _fill(conn: Connection, tables: ReplicaTables, rid: int) -> None:
    after = ""
    while True:
        with conn.transaction():
            rows = conn.execute(
                f"select {', '.join(record_schema().names)} from {tables.changelog}"
                " where rid = :rid and csn > :after and chain is null order by csn limit :rows",
                {"rid": rid, "after": after, "rows": _PAGE_ROWS},
            )
            if not rows:
                return
            before = _value_before(conn, rid, rows[0][1])
            if before is None:
                return
            batch = _batch(rows)
            chain, _ = chain_of(batch, {rid: before})
            conn.execute_many(
                f"update {tables.changelog} set chain = :chain where rid = :rid and csn = :csn",
                [
                    {"rid": rid, "csn": row[0], "chain": value}
                    for row, value in zip(rows, chain.to_pylist(), strict=True)
                ],
            )
        after = rows[-1][0]


def _value_before(conn: Connection, rid: int, prev: str | None) -> bytes | None:
    if prev is None:
        return seed_of(rid)
    return find_points(conn, {rid: prev})[rid].chain


def read_records_between(
    conn: Connection, rid: int, *, after: str, upto: str, rows_max: int
) -> pa.RecordBatch:
    """Records of one replica above a CSN, up to and with another."""
    rows = conn.execute(
        f"select {', '.join(record_schema().names)} from {tables_of(conn).changelog}"
        " where rid = :rid and csn > :after and csn <= :upto order by csn limit :rows",
        {"rid": rid, "after": str(after), "upto": str(upto), "rows": rows_max},
    )
    return _batch(rows)


def _batch(rows: list[tuple[object, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(record_schema())
    arrays = [
        pa.array(list(column), field.type) for column, field in zip(columns, record_schema(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=record_schema())


def _bytes(value: bytes | memoryview | None) -> bytes | None:
    return None if value is None else bytes(value)
