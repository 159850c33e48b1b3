"""How much there is to send: records of windows, the oldest of them, and entries that fit into a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark.formats.changes.batch import ROW_BYTES
from spark.formats.csn import CSN_CHARS, Csn
from spark.formats.part import Part, Prefix
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
    return min(oldest_by_rid(conn, windows).values(), key=_csn_of, default=None)


def oldest_by_rid(conn: Connection, windows: Mapping[int, Window]) -> dict[int, Oldest]:
    """The first record of each window that has any, by replica id."""
    table = tables_of(conn).changelog
    found = {}
    for rid in sorted(windows):
        where, params = _within(rid, windows[rid])
        rows = conn.execute(
            f"select csn, logged_at_s from {table} where {where} order by rid, csn limit 1", params
        )
        for csn, logged_at_s in rows:
            found[rid] = Oldest(Csn(csn), int(logged_at_s))
    return found


def _csn_of(found: Oldest) -> Csn:
    return found.csn


def count_fitting(
    conn: Connection,
    *,
    after: tuple[bytes, bytes] | None,
    rows_max: int,
    bytes_max: int,
    within: Prefix | None = None,
) -> int:
    """How many entries behind a key fit into a batch, at least one where there is any; 0: there are none.

    Their sizes alone are read: a page of large values would not fit into memory.

    Args:
        bytes_max: of a batch once it is decoded, without what it takes by itself (BATCH_BYTES).
        within: only entries of these keys.
    """
    length = "octet_length" if conn.dialect.name == "postgresql" else "length"
    conditions: list[str] = []
    params: dict[str, Any] = {"rows_max": rows_max}
    if after is not None:
        conditions.append("(database, key) > (:database, :key)")
        params |= {"database": after[0], "key": after[1]}
    if within is not None:
        condition, of_part = Part((within,)).condition()
        conditions.append(condition)
        params |= of_part
    where = f"where {' and '.join(conditions)} " if conditions else ""
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
