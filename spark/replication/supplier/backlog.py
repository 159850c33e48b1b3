"""How much there is to send: records of windows, the oldest of them, and entries that fit into a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark.formats.changes.batch import ROW_BYTES
from spark.formats.csn import CSN_CHARS, Csn
from spark.formats.replica import tables_of
from spark.replication.supplier.decide import Window
from spark.targets.connection import Connection


@dataclass(frozen=True, slots=True)
class Oldest:
    """The first record of some windows; `logged_at_s` by the target's clock, seconds since 1970."""

    csn: Csn
    logged_at_s: int


def count_missing(conn: Connection, windows: Mapping[int, Window]) -> dict[int, int]:
    """How many records each window holds, by replica id."""
    table = tables_of(conn).changelog
    counted = {}
    for rid in sorted(windows):
        where, params = _within(rid, windows[rid])
        [(rows,)] = conn.execute(f"select count(*) from {table} where {where}", params)
        counted[rid] = int(rows)
    return counted


def oldest_missing(conn: Connection, windows: Mapping[int, Window]) -> Oldest | None:
    """The record with the least CSN in any of the windows; None: they are empty."""
    table = tables_of(conn).changelog
    found: Oldest | None = None
    for rid in sorted(windows):
        where, params = _within(rid, windows[rid])
        rows = conn.execute(
            f"select csn, logged_at_s from {table} where {where} order by rid, csn limit 1", params
        )
        for csn, logged_at_s in rows:
            if found is None or csn < found.csn:
                found = Oldest(Csn(csn), int(logged_at_s))
    return found


def count_fitting(
    conn: Connection, *, after: tuple[bytes, bytes] | None, rows_max: int, bytes_max: int
) -> int:
    """How many entries behind a key fit into a batch, at least one where there is any; 0: there are none.

    Their sizes alone are read: a page of large values would not fit into memory.

    Args:
        bytes_max: of a batch once it is decoded, without what it takes by itself (BATCH_BYTES).
    """
    length = "octet_length" if conn.dialect.name == "postgresql" else "length"
    where = ""
    params: dict[str, Any] = {"rows_max": rows_max}
    if after is not None:
        where = "where (database, key) > (:database, :key) "
        params |= {"database": after[0], "key": after[1]}
    rows = conn.execute(
        f"select {length}(database) + {length}(key) + coalesce({length}(value), 0)"
        f" from {tables_of(conn).entries} {where}order by database, key limit :rows_max",
        params,
    )
    held = fitting = 0
    for (size,) in rows:
        held += size + ROW_BYTES + CSN_CHARS
        if fitting and held > bytes_max:
            break
        fitting += 1
    return fitting


def _within(rid: int, window: Window) -> tuple[str, dict[str, object]]:
    where, params = "rid = :rid and csn <= :upto", {"rid": rid, "upto": str(window.upto)}
    if window.after is None:
        return where, dict(params)
    return f"{where} and csn > :after", params | {"after": str(window.after)}
