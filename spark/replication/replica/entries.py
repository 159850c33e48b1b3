"""The entries of a replica, read by their keys: one, some, or pages in the order of (database, key)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark.formats.arrow import pa
from spark.formats.csn import Csn
from spark.formats.replica import ReplicaTables, tables_of
from spark.replication.errors import ReplicaMissing
from spark.replication.records import entry_schema
from spark.targets.connection import Connection
from spark.targets.errors import TargetTablesMissing
from spark.targets.key_order import read_by_index

_AT_ONCE: Final = 100

Key = tuple[bytes, bytes]
"""Database and key."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The newest state of one key; a tombstone has no value."""

    value: bytes | None
    csn: Csn
    is_tombstone: bool


def read_standing(
    conn: Connection, tables: ReplicaTables, keys: Sequence[Key]
) -> Iterator[tuple[Key, str, bool]]:
    """The CSN of each of these keys that has an entry, and whether that is a tombstone.

    Args:
        keys: (database, key), each once.
    """
    for begin in range(0, len(keys), _AT_ONCE):
        some = keys[begin : begin + _AT_ONCE]
        params: dict[str, Any] = {}
        looks = []
        for at, (database, key) in enumerate(some):
            params |= {f"database{at}": database, f"key{at}": key}
            # One look by the key for each: given all keys at once the planner reads the whole table.
            looks.append(
                f"select {at} as number, csn, is_tombstone from {tables.entries}"
                f" where database = :database{at} and key = :key{at}"
            )
        for number, csn, is_tombstone in conn.execute(" union all ".join(looks), params):
            yield some[number], str(csn), bool(is_tombstone)


def get_entry(conn: Connection, database: bytes, key: bytes) -> Entry | None:
    """The entry of a key; None: it was never written. Deleted ones are there as tombstones.

    Raises: ReplicaMissing.
    """
    rows = _read(
        conn,
        f"select value, csn, is_tombstone from {tables_of(conn).entries}"
        " where database = :database and key = :key",
        {"database": database, "key": key},
    )
    return Entry(rows[0][0], Csn(rows[0][1]), bool(rows[0][2])) if rows else None


def read_entries(
    conn: Connection,
    *,
    after: tuple[bytes, bytes] | None,
    rows_max: int,
    database: bytes | None = None,
    prefix: bytes | None = None,
    tombstones: bool = True,
) -> pa.RecordBatch:
    """One page in the order of (database, key), of entry_schema(); an empty page is the end.

    Args:
        after: the last key of the page before.
        rows_max: how many rows the page has at most; values are up to 1 MiB each.
        prefix: with `database`: only keys that begin with it.
    Raises: ReplicaMissing.
    """
    assert prefix is None or database is not None, "a prefix is one of the keys of a database"
    conditions: list[str] = []
    params: dict[str, Any] = {"rows_max": rows_max}
    if after is not None:
        conditions.append("(database, key) > (:after_database, :after_key)")
        params |= {"after_database": after[0], "after_key": after[1]}
    if database is not None:
        conditions.append("database = :database")
        params["database"] = database
    if prefix:
        conditions.append("key >= :prefix")
        params["prefix"] = prefix
        end = end_of(prefix)
        if end is not None:
            conditions.append("key < :prefix_end")
            params["prefix_end"] = end
    if not tombstones:
        conditions.append("not is_tombstone")
    where = f" where {' and '.join(conditions)}" if conditions else ""
    sql = (
        f"select database, key, value, csn, is_tombstone from {tables_of(conn).entries}{where}"
        " order by database, key limit :rows_max"
    )
    if conn.in_transaction:
        rows = _read_page(conn, sql, params)
    else:
        with conn.transaction(read_only=True):
            rows = _read_page(conn, sql, params)
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) if rows else [()] * len(entry_schema())
    if conn.dialect.name == "sqlite":
        columns[-1] = tuple(bool(each) for each in columns[-1])
    arrays = [pa.array(column, field.type) for column, field in zip(columns, entry_schema(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=entry_schema())


def end_of(prefix: bytes) -> bytes | None:
    """The least key above all that begin with the prefix; None: nothing is above them."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _read_page(conn: Connection, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    read_by_index(conn)
    return _read(conn, sql, params)


def _read(conn: Connection, sql: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
    try:
        return conn.execute(sql, params)
    except TargetTablesMissing as error:
        raise ReplicaMissing(error.detail) from error
