"""Extinctions at a replica: how one is committed, and what is known of all.

Invariants:
- an extinction is one record of the changelog and one row, both in one transaction with the RUV, or nothing;
- its writer holds the locks of session and generator to the commit, in this order: no batch and no local
  write that did not know of it commits after it;
- a row is never removed: a key that was extinct once is never anything else.
Source: design.md, Extinction; je-extinction-filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from spark.formats.arrow import pa
from spark.formats.csn import Csn
from spark.formats.extinction import Extinction
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.csn_generator import adjust
from spark.replication.errors import ReplicaMissing, ReplicaNotOnline
from spark.replication.records import ReplicaRow, ReplicaStatus
from spark.replication.replica.appending import Own, give_csns, read_own
from spark.replication.replica.extinction_index import parse_stored
from spark.replication.replica.extinction_records import extinction_records, log_extinction
from spark.replication.replica.replica import (
    Expected,
    lock_replica,
    loss_of,
    mark_loss,
    recalled,
    save_generator,
    save_replica,
)
from spark.replication.sessions.row import lock_session
from spark.targets.connection import Connection
from spark.targets.errors import TargetTablesMissing

_COLUMNS: Final = "csn, rid, payload, state, records, bytes, tombstones, late, logged_at_s, done_at_s"


class ScanState(StrEnum):
    """How far a replica is with an extinction; DONE: no entry of its keys is left here."""

    LOGGED = "LOGGED"
    SCANNING = "SCANNING"
    DONE = "DONE"


@dataclass(frozen=True, slots=True)
class KnownExtinction:
    """An extinction as this replica knows it; times by the target's clock.

    Attributes:
        records, bytes, tombstones: what the scan here has removed so far: live entries, octets of their keys
            and values, and deleted ones.
        late: changes of its keys that came after it and were ignored.
    """

    extinction: Extinction
    csn: Csn
    rid: int
    state: ScanState
    records: int
    bytes: int
    tombstones: int
    late: int
    logged_at_s: int
    done_at_s: int | None


def write_extinction(
    conn: Connection,
    extinction: Extinction,
    *,
    now_s: int,
    expected: Expected,
    permit: Callable[[Connection], None] = lambda _conn: None,
) -> Csn:
    """Commit an extinction with a CSN of this replica, in one transaction; again it changes nothing.

    Args:
        now_s, expected: as for `write_group`.
        permit: raises where it may not be; asked when no other writer of this replica can come between.
    Returns: its CSN.
    Raises: as `write_group`.
    """
    tables = tables_of(conn)
    with conn.transaction():
        lock_session(conn, tables)
        row, state = lock_replica(conn, tables)
        own = read_own(conn, tables, row.rid)
        expected = recalled(row, own.max_csn, expected)
        lost = loss_of(row, own.max_csn, expected)
        if lost is None:
            if row.status not in (ReplicaStatus.EMPTY, ReplicaStatus.ONLINE):
                raise ReplicaNotOnline(row.status)
            known = _csn_of(conn, tables, extinction.id)
            if known is not None:
                return known
            permit(conn)
            if own.max_csn is not None:
                state = adjust(state, remote=Csn(own.max_csn), now_s=now_s)
            given, state = give_csns(state, 1 if row.generation is not None else 2, now_s=now_s)
            if row.generation is None:
                save_replica(conn, tables, replace(row, generation=given[0], status=ReplicaStatus.ONLINE))
            save_generator(conn, tables, state)
            return _write(conn, tables, extinction, Csn(given[-1]), row, own)
        mark_loss(conn, tables, row, expected, lost)
    raise lost


def put_extinctions(conn: Connection, tables: ReplicaTables, records: pa.RecordBatch, *, now_s: int) -> None:
    """Keep the extinctions of records of that kind, inside the transaction that applies them.

    The caller holds the locks of session and generator. One that is known already stays as it is.

    Args:
        records: of record_schema(), each with a payload that can be read.
        now_s: by the target's clock.
    """
    assert conn.in_transaction, "an extinction and what it forbids share one transaction"
    rows = []
    for csn, payload in zip(
        records.column("csn").to_pylist(), records.column("payload").to_pylist(), strict=True
    ):
        rows.append(_values(parse_stored(payload), Csn(csn), now_s=now_s))
    _insert(conn, tables, rows)


def count_late(conn: Connection, tables: ReplicaTables, late: Mapping[str, int]) -> None:
    """Add changes that were ignored, by the extinction that covers them; in the transaction of the batch."""
    conn.execute_many(
        f"update {tables.extinctions} set late = late + :count where id = :id",
        [{"id": name, "count": count} for name, count in sorted(late.items())],
    )


def read_extinctions(conn: Connection, *, ids: Sequence[str] | None = None) -> list[KnownExtinction]:
    """All extinctions that this replica knows, in the order of their CSNs.

    Args:
        ids: only these.
    Raises: ReplicaMissing, ExtinctionUnreadable.
    """
    tables = tables_of(conn)
    params = {f"id{at}": name for at, name in enumerate(ids or ())}
    where = "" if ids is None else f" where id in ({', '.join(f':{name}' for name in params) or 'null'})"
    sql = (
        f"select {_COLUMNS}, (select coalesce(sum(s.records), 0) from {tables.extinction_slices} s"
        " where s.extinction_id = e.id), (select coalesce(sum(s.bytes), 0) from"
        f" {tables.extinction_slices} s where s.extinction_id = e.id),"
        f" (select coalesce(sum(s.tombstones), 0) from {tables.extinction_slices} s"
        f" where s.extinction_id = e.id) from {tables.extinctions} e{where} order by csn"
    )
    try:
        return [_known(row) for row in conn.execute(sql, params)]
    except TargetTablesMissing as error:
        raise ReplicaMissing(error.detail) from error


def find_extinction(conn: Connection, extinction_id: str) -> KnownExtinction | None:
    """One of them; None: this replica does not know it.

    Raises: as `read_extinctions`.
    """
    found = read_extinctions(conn, ids=[extinction_id])
    return found[0] if found else None


def read_records(conn: Connection) -> pa.RecordBatch:
    """All extinctions as records (record_schema()) in the order of their CSNs, as a total copy takes them."""
    rows = conn.execute(f"select csn, payload from {tables_of(conn).extinctions} order by csn")
    return extinction_records([(csn, None, bytes(payload)) for csn, payload in rows])


def newest_by_rid(conn: Connection) -> dict[int, Csn]:
    """Of each replica id the greatest CSN of its extinctions here: what a supplier announces."""
    rows = conn.execute(f"select rid, max(csn) from {tables_of(conn).extinctions} group by rid order by rid")
    return {rid: Csn(csn) for rid, csn in rows}


def knows_database(conn: Connection, database: bytes) -> bool:
    """Whether an entry, an extinction or a record of the changelog names it; the last is read whole."""
    tables, params = tables_of(conn), {"database": database}
    if conn.execute(f"select 1 from {tables.entries} where database = :database limit 1", params):
        return True
    if any(database in each.extinction.databases for each in read_extinctions(conn)):
        return True
    return bool(conn.execute(f"select 1 from {tables.changelog} where database = :database limit 1", params))


# -- rows


def _write(
    conn: Connection,
    tables: ReplicaTables,
    extinction: Extinction,
    csn: Csn,
    row: ReplicaRow,
    own: Own,
) -> Csn:
    log_extinction(conn, tables, extinction.to_json(), csn, row, own)
    _insert(conn, tables, [_values(extinction, csn, now_s=own.now_s)])
    return csn


def _values(extinction: Extinction, csn: Csn, *, now_s: int) -> dict[str, Any]:
    return {
        "id": extinction.id,
        "csn": str(csn),
        "rid": csn.rid,
        "payload": extinction.to_json(),
        "state": ScanState.LOGGED.value,
        "now_s": now_s,
    }


def _insert(conn: Connection, tables: ReplicaTables, rows: Sequence[Mapping[str, Any]]) -> None:
    conn.execute_many(
        f"insert into {tables.extinctions}"
        " (id, csn, rid, payload, state, records, bytes, tombstones, late, logged_at_s)"
        " values (:id, :csn, :rid, :payload, :state, 0, 0, 0, 0, :now_s) on conflict (id) do nothing",
        rows,
    )


def _csn_of(conn: Connection, tables: ReplicaTables, extinction_id: str) -> Csn | None:
    rows = conn.execute(f"select csn from {tables.extinctions} where id = :id", {"id": extinction_id})
    return Csn(rows[0][0]) if rows else None


def _known(row: tuple[Any, ...]) -> KnownExtinction:
    csn, rid, payload, state, records, size, tombstones, late, logged_at_s, done_at_s = row[:10]
    return KnownExtinction(
        parse_stored(bytes(payload)),
        Csn(csn),
        rid,
        ScanState(state),
        records + int(row[10]),
        size + int(row[11]),
        tombstones + int(row[12]),
        late,
        logged_at_s,
        done_at_s,
    )
