"""One batch of a scan: the extinct entries among the next rows of a slice go, in one transaction.

Invariants:
- entries, the slice's cursor and its counts change together; the cursor moves only from where the caller saw
  it: of two workers at one slice one wins each batch, and what the other did is undone;
- a batch looks at `rows_max` entries at most, extinct or not: its locks are few and its end is near;
- whoever wrote an entry of these keys has committed before the extinction did, and nobody writes one after:
  what a batch has passed stays free of them.
Source: design.md, Extinction; eraser-behaviour, section 11.
"""

from dataclasses import replace
from typing import Final, Literal

from spark.extinction.slices import ScanSlice, key_after, key_range
from spark.formats.extinction_sql import SqlCondition, filter_condition
from spark.formats.replica import tables_of
from spark.targets.connection import Connection
from spark.targets.key_order import read_by_index

SQLITE_ROWS_MAX: Final = 200
"""Entries of one transaction on SQLite, where every other writer waits for it."""
Step = tuple[bytes | None, tuple[int, int, int]]
"""The last key that was looked at, None: there are no more; live entries, their octets, and tombstones."""


class SliceMoved(Exception):
    """Another worker has moved the slice's cursor, or the slice is gone; nothing was changed."""


def rows_of(conn: Connection, rows_max: int) -> int:
    """How many entries one transaction may look at."""
    return min(rows_max, SQLITE_ROWS_MAX) if conn.dialect.name == "sqlite" else rows_max


def relax_durability(conn: Connection, *, relaxed: bool = True) -> None:
    """SQLite: let a power loss take the last batches back, each whole, with its cursor; outside transactions.

    `synchronous = full` again before a scan is said to be DONE: that commit makes all before it durable.
    """
    if conn.dialect.name == "sqlite":
        conn.execute(f"pragma synchronous = {'normal' if relaxed else 'full'}")
        conn.execute(f"pragma wal_autocheckpoint = {8_000 if relaxed else 1_000}")


def run_batch(conn: Connection, part: ScanSlice, *, rows_max: int) -> ScanSlice:
    """Remove the extinct entries among the next `rows_max` of a slice, in one transaction.

    Returns: the slice as it stands then.
    Raises: SliceMoved, TargetError: nothing has changed.
    """
    assert not part.is_done, "a slice that is done has no next rows"
    low, is_open = part.cursor_key, True
    if low is None:
        low, is_open = part.start_key, False
    with conn.transaction():
        step = _remove_postgresql if conn.dialect.name == "postgresql" else _remove_sqlite
        upto, (records, size, tombstones) = step(conn, part, low, is_open=is_open, rows_max=rows_max)
        after = replace(
            part,
            cursor_key=part.cursor_key if upto is None else upto,
            is_done=upto is None,
            records=part.records + records,
            bytes=part.bytes + size,
            tombstones=part.tombstones + tombstones,
        )
        _move(conn, part, after)
    return after


def _remove_postgresql(
    conn: Connection, part: ScanSlice, low: bytes | None, *, is_open: bool, rows_max: int
) -> Step:
    """One statement deletes and counts; of a value kept apart its length is known without reading it."""
    read_by_index(conn)
    # Lost together with what it removed: the cursor is in the same transaction.
    conn.execute("select set_config('synchronous_commit', 'off', true)")
    upto = key_after(conn, part.database, low=low, is_open=is_open, end=part.end_key, rows=rows_max)
    where, params = key_range(low, part.end_key if upto is None else None, is_open=is_open)
    if upto is not None:
        where, params = f"{where} and key <= :upto_key", params | {"upto_key": upto}
    matches = _matches(part, "postgresql")
    [(records, size, tombstones)] = conn.execute(
        f"with gone as (delete from {tables_of(conn).entries} where database = :database{where}"
        f" and {matches.text}"
        " returning octet_length(key) + coalesce(octet_length(value), 0) as size, is_tombstone)"
        " select count(*) filter (where not is_tombstone),"
        " coalesce(sum(size) filter (where not is_tombstone), 0),"
        " count(*) filter (where is_tombstone) from gone",
        {**params, **matches.params, "database": part.database},
    )
    return upto, (records, int(size), tombstones)


def _remove_sqlite(
    conn: Connection, part: ScanSlice, low: bytes | None, *, is_open: bool, rows_max: int
) -> Step:
    """Counted first: nobody else can write, and a delete that returns rows takes five times as long."""
    table, matches = tables_of(conn).entries, _matches(part, "sqlite")
    where, params = key_range(low, part.end_key, is_open=is_open)
    bound = {**params, **matches.params, "database": part.database}
    [(looked, last, records, size, tombstones)] = conn.execute(
        "select count(*), max(key), coalesce(sum(matched and not is_tombstone), 0),"
        " coalesce(sum((matched and not is_tombstone) * size), 0),"
        " coalesce(sum(matched and is_tombstone), 0) from"
        f" (select key, is_tombstone, {matches.text} as matched,"
        f" length(key) + coalesce(length(value), 0) as size from {table}"
        f" where database = :database{where} order by key limit :rows_max)",
        bound | {"rows_max": rows_max},
    )
    if looked:
        # Of two upper bounds SQLite takes the first, and reads up to it: here is only one.
        where, params = key_range(low, None, is_open=is_open)
        conn.execute(
            f"delete from {table} where database = :database{where} and key <= :upto_key and {matches.text}",
            {**params, **matches.params, "database": part.database, "upto_key": last},
        )
    return last if looked == rows_max else None, (records, size, tombstones)


def _matches(part: ScanSlice, dialect: Literal["postgresql", "sqlite"]) -> SqlCondition:
    if part.extinction.filter is None:
        return SqlCondition("(1 = 1)", {})
    return filter_condition(part.extinction.filter, column="key", dialect=dialect)


def _move(conn: Connection, before: ScanSlice, after: ScanSlice) -> None:
    same = "cursor_key is null" if before.cursor_key is None else "cursor_key = :before"
    moved = conn.execute_count(
        f"update {tables_of(conn).extinction_slices} set cursor_key = :cursor, is_done = :is_done,"
        " records = :records, bytes = :bytes, tombstones = :tombstones"
        f" where extinction_id = :id and number = :number and not is_done and {same}",
        {
            "id": before.extinction.id,
            "number": before.number,
            "cursor": after.cursor_key,
            "is_done": after.is_done,
            "records": after.records,
            "bytes": after.bytes,
            "tombstones": after.tombstones,
        }
        | ({} if before.cursor_key is None else {"before": before.cursor_key}),
    )
    if moved != 1:
        raise SliceMoved(f"slice {before.number} of {before.extinction.id}")
