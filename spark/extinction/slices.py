"""The parts of a scan for extinct entries, and where each of them stands.

    LOGGED -> SCANNING: its slices are written -> each of them is scanned -> DONE: its counts, no slices

Rules:
- the slices of an extinction cover every key of its ranges in each of its databases; they are written once;
- what a slice has removed is counted in the transaction that removes it, and added up in the one that ends
  the scan: nothing is counted twice;
- a scan that has ended is never begun again; another one for the same extinction finds nothing.
Source: design.md, Extinction; je-extinction-filter ("JE will asynchronously remove the specified records").
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark.formats.extinction import Extinction
from spark.formats.replica import tables_of
from spark.targets.connection import Connection
from spark.targets.key_order import select_by_index

SLICES_MAX: Final = 10_000
_ROW: Final = "number, database, start_key, end_key, cursor_key, is_done, records, bytes, tombstones"
Bounds = tuple[bytes, bytes | None, bytes | None]
"""Database, first key (inclusive), last key (exclusive); None: open."""


@dataclass(frozen=True, slots=True)
class ScanSlice:
    """A part of a scan as it stands; picklable.

    Attributes:
        cursor_key: all up to it was looked at; None: it has not begun.
        records, bytes, tombstones: what it has removed.
    """

    extinction: Extinction
    number: int
    database: bytes
    start_key: bytes | None
    end_key: bytes | None
    cursor_key: bytes | None = None
    is_done: bool = False
    records: int = 0
    bytes: int = 0
    tombstones: int = 0


@dataclass(frozen=True, slots=True)
class Removed:
    """What a scan has removed: live entries, octets of their keys and values, and deleted ones."""

    records: int
    bytes: int
    tombstones: int


def cut_slices(conn: Connection, extinction: Extinction, *, rows: int | None) -> Iterator[Bounds]:
    """Cut an extinction into parts of about so many entries; None: one for each database.

    At most SLICES_MAX; the last one is as large as it has to be.
    """
    if extinction.end_key is not None and (extinction.start_key or b"") >= extinction.end_key:
        return
    made = 0
    for database in sorted(extinction.databases):
        low = extinction.start_key
        while rows is not None and made < SLICES_MAX:
            cut = key_after(conn, database, low=low, is_open=False, end=extinction.end_key, rows=rows + 1)
            if cut is None:
                break
            yield database, low, cut
            low, made = cut, made + 1
        yield database, low, extinction.end_key
        made += 1


def count_upto(conn: Connection, extinction: Extinction, *, rows_max: int) -> int:
    """How many entries its ranges hold, extinct or not; `rows_max` stands for that many or more."""
    rows = 0
    for database in sorted(extinction.databases):
        where, params = key_range(extinction.start_key, extinction.end_key, is_open=False)
        [(found,)] = select_by_index(
            conn,
            f"select count(*) from (select 1 from {tables_of(conn).entries}"
            f" where database = :database{where} limit :rows) found",
            params | {"database": database, "rows": rows_max - rows},
        )
        rows += found
        if rows >= rows_max:
            break
    return rows


def key_after(
    conn: Connection, database: bytes, *, low: bytes | None, is_open: bool, end: bytes | None, rows: int
) -> bytes | None:
    """The key of the n-th entry from `low` on (behind it where `is_open`), below `end`; None: fewer are."""
    where, params = key_range(low, end, is_open=is_open)
    found = select_by_index(
        conn,
        f"select key from {tables_of(conn).entries} where database = :database{where}"
        " order by key limit 1 offset :passed",
        params | {"database": database, "passed": rows - 1},
    )
    return bytes(found[0][0]) if found else None


def key_range(low: bytes | None, end: bytes | None, *, is_open: bool) -> tuple[str, dict[str, Any]]:
    """The SQL of a range of keys of one database, beginning with `and`, and its parameters."""
    parts, params = [], {}
    if low is not None:
        parts.append(f" and key {'>' if is_open else '>='} :low_key")
        params["low_key"] = low
    if end is not None:
        parts.append(" and key < :end_key")
        params["end_key"] = end
    return "".join(parts), params


def begin_scan(conn: Connection, extinction_id: str, slices: Sequence[Bounds]) -> bool:
    """Write the slices and SCANNING, in one transaction; whether the extinction is known here.

    Nothing is changed where they are there already, or the scan has ended.
    """
    tables = tables_of(conn)
    lock = " for update" if conn.dialect.name == "postgresql" else ""
    with conn.transaction():
        found = conn.execute(
            f"select state from {tables.extinctions} where id = :id{lock}", {"id": extinction_id}
        )
        if not found or found[0][0] != "LOGGED":
            return bool(found)
        conn.execute_many(
            f"insert into {tables.extinction_slices}"
            " (extinction_id, number, database, start_key, end_key, is_done, records, bytes, tombstones)"
            " values (:id, :number, :database, :start_key, :end_key, :no, 0, 0, 0)",
            [
                {
                    "id": extinction_id,
                    "number": number,
                    "database": database,
                    "start_key": low,
                    "end_key": end,
                    "no": False,
                }
                for number, (database, low, end) in enumerate(slices)
            ],
        )
        conn.execute(
            f"update {tables.extinctions} set state = 'SCANNING' where id = :id", {"id": extinction_id}
        )
    return True


def read_slices(conn: Connection, extinction: Extinction) -> list[ScanSlice]:
    """The slices of a scan that is under way, in their order; none: it has not begun, or has ended."""
    rows = conn.execute(
        f"select {_ROW} from {tables_of(conn).extinction_slices} where extinction_id = :id order by number",
        {"id": extinction.id},
    )
    return [slice_of(extinction, row) for row in rows]


def read_slice(conn: Connection, known: ScanSlice) -> ScanSlice | None:
    """A slice as it stands now; None: the scan has ended, or the target was put back to before it."""
    rows = conn.execute(
        f"select {_ROW} from {tables_of(conn).extinction_slices}"
        " where extinction_id = :id and number = :number",
        {"id": known.extinction.id, "number": known.number},
    )
    return slice_of(known.extinction, rows[0]) if rows else None


def slice_of(extinction: Extinction, row: Sequence[Any]) -> ScanSlice:
    """A slice as its row keeps it."""
    number, database, start_key, end_key, cursor_key, is_done, records, size, tombstones = row
    return ScanSlice(
        extinction,
        number,
        bytes(database),
        _bytes(start_key),
        _bytes(end_key),
        _bytes(cursor_key),
        bool(is_done),
        records,
        size,
        tombstones,
    )


def finish_scan(conn: Connection, extinction_id: str, *, now_s: int) -> Removed | None:
    """Write DONE and the counts, in one transaction, if every slice is done; again the same answer.

    Args:
        now_s: by the target's clock.
    Returns: what the scan has removed; None: some slice is not done, or the extinction is not known here.
    """
    tables = tables_of(conn)
    lock = " for update" if conn.dialect.name == "postgresql" else ""
    with conn.transaction():
        found = conn.execute(
            f"select state, records, bytes, tombstones from {tables.extinctions} where id = :id{lock}",
            {"id": extinction_id},
        )
        if not found or found[0][0] == "LOGGED":
            return None
        if found[0][0] == "DONE":
            return Removed(*found[0][1:])
        [(left, *counts)] = conn.execute(
            "select coalesce(sum(case when is_done then 0 else 1 end), 0), coalesce(sum(records), 0),"
            f" coalesce(sum(bytes), 0), coalesce(sum(tombstones), 0) from {tables.extinction_slices}"
            " where extinction_id = :id",
            {"id": extinction_id},
        )
        if left:
            return None
        removed = Removed(*(int(count) for count in counts))
        conn.execute(
            f"update {tables.extinctions} set state = 'DONE', done_at_s = :now_s, records = :records,"
            " bytes = :bytes, tombstones = :tombstones where id = :id",
            {
                "id": extinction_id,
                "now_s": now_s,
                "records": removed.records,
                "bytes": removed.bytes,
                "tombstones": removed.tombstones,
            },
        )
        conn.execute(
            f"delete from {tables.extinction_slices} where extinction_id = :id", {"id": extinction_id}
        )
    return removed


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
