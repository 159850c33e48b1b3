"""Counts and checksums of changes and entries, by which two replicas compare what they hold.

The checksum commits to every byte of every value, in the order of CSNs (entries: of databases and keys):
each column is hashed twice, its lengths (signed 32 bits, little-endian, -1 for null) and its bytes one after
the other, by BLAKE2b-256; the checksum is BLAKE2b-256 over a name of this form, the count and these hashes.
Pages do not show in it, and no two different sequences have the same one unless somebody breaks BLAKE2b.
Changes: csn, kind, database, key, payload; `prev` and times are not part of it. Entries, tombstones among
them: database, key, value, csn, and whether it is a tombstone. Entries of extinct keys count for nothing: one
replica's scan may have removed them, another's not yet. So do tombstones up to the bound of a side that has
purged some.

What is read at once is bounded in rows and bytes, each page in a statement of its own: a range is quiet when
it lies within the RUV and above the purge vector, entries are quiet as long as the RUV stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark.formats.arrow import np, pa
from spark.formats.csn import Csn
from spark.formats.extinction import ExtinctionIndex, ExtinctionStatus
from spark.formats.part import Part
from spark.formats.replica import tables_of
from spark.replication.proofs.withholding import withhold
from spark.replication.records import record_schema
from spark.replication.replica.extinction_index import read_index
from spark.targets.connection import Connection
from spark.targets.key_order import select_by_index

FORM: Final = b"lethe-digest-1\0"
PAGE_ROWS: Final = 5_000
PAGE_BYTES: Final = 4 * 1024 * 1024
SAMPLE_ROWS: Final = 1_000
ShouldStop = Callable[[], bool]
EntryKey = tuple[bytes, bytes]
FIRST_KEY: Final[EntryKey] = (b"", b"")
"""Before every entry: no database and no key is empty."""


class DigestStopped(Exception):
    """The reader must stop; what was hashed so far says nothing."""


@dataclass(frozen=True, slots=True)
class Digest:
    """How many rows, and their checksum in hexadecimal."""

    count: int
    checksum: str


class Digester:
    """The running checksum over rows of `columns` values, each bytes or None."""

    def __init__(self, columns: int) -> None:
        self.count = 0
        self._lengths = [hashlib.blake2b(digest_size=32) for _ in range(columns)]
        self._contents = [hashlib.blake2b(digest_size=32) for _ in range(columns)]

    def add(self, columns: Sequence[Sequence[bytes | None]]) -> None:
        """Take the next rows, column by column."""
        self.count += len(columns[0])
        for column, lengths, contents in zip(columns, self._lengths, self._contents, strict=True):
            sizes = (-1 if value is None else len(value) for value in column)
            lengths.update(np.fromiter(sizes, dtype="<i4", count=len(column)).tobytes())
            contents.update(b"".join(value for value in column if value is not None))

    def result(self) -> Digest:
        """Count and checksum of everything so far."""
        whole = hashlib.blake2b(FORM + self.count.to_bytes(8, "little"), digest_size=32)
        for lengths, contents in zip(self._lengths, self._contents, strict=True):
            whole.update(lengths.digest() + contents.digest())
        return Digest(self.count, whole.hexdigest())


def digest_changes(
    conn: Connection,
    rid: int,
    *,
    after: str | None,
    upto: str,
    should_stop: ShouldStop = lambda: False,
    part: Part | None = None,
) -> Digest:
    """The changes of one replica id above `after` (None: from the first), up to and with `upto`.

    Args:
        part: as a replica has them that holds only these keys.
    Raises: DigestStopped; TargetError.
    """
    table = tables_of(conn).changelog
    digester = Digester(5)
    low = after or ""
    inside = "rid = :rid and csn > :low and csn <= :high"
    while True:
        if should_stop():
            raise DigestStopped
        sizes = select_by_index(
            conn,
            f"select csn, {_size(conn, 'database', 'key', 'payload')} from {table} where {inside}"
            " order by csn limit :rows",
            {"rid": rid, "low": low, "high": upto, "rows": PAGE_ROWS},
        )
        if not sizes:
            return digester.result()
        high = sizes[_fitting(sizes) - 1][0]
        rows = select_by_index(
            conn,
            f"select csn, prev, kind, database, key, payload from {table} where {inside} order by csn",
            {"rid": rid, "low": low, "high": high},
        )
        if rows:
            csns, kinds, databases, keys, payloads = _as_held(rows, part)
            digester.add([_texts(csns), _texts(kinds), databases, keys, payloads])
        low = high


def digest_entries(
    conn: Connection,
    *,
    after: EntryKey = FIRST_KEY,
    upto: EntryKey | None = None,
    should_stop: ShouldStop = lambda: False,
    part: Part | None = None,
    buried: str | None = None,
) -> Digest:
    """The entries behind `after`, up to and with `upto` (None: to the end), but those of extinct keys.

    Args:
        part: only these keys.
        buried: without tombstones up to this CSN.
    Raises: DigestStopped; TargetError; ExtinctionUnreadable.
    """
    tables = tables_of(conn)
    table, index = tables.entries, read_index(conn, tables)
    digester = Digester(5)
    held, of_part = _held(part, buried)
    low = after
    while True:
        if should_stop():
            raise DigestStopped
        sizes = select_by_index(
            conn,
            f"select database, key, {_size(conn, 'database', 'key', 'value')} from {table}"
            f" where {_between(upto)}{held} order by database, key limit :rows",
            _bounds(low, upto) | of_part | {"rows": PAGE_ROWS},
        )
        if not sizes:
            return digester.result()
        last = sizes[_fitting(sizes) - 1]
        high = (bytes(last[0]), bytes(last[1]))
        rows = select_by_index(
            conn,
            f"select database, key, value, csn, is_tombstone from {table}"
            f" where {_between(high)}{held} order by database, key",
            _bounds(low, high) | of_part,
        )
        rows = _not_extinct(index, rows)
        if rows:
            databases, keys, values, csns, dead = zip(*rows, strict=True)
            flags = [b"1" if each else b"0" for each in dead]
            digester.add([databases, keys, values, _texts(csns), flags])
        low = high


def _not_extinct(index: ExtinctionIndex, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    if not index:
        return rows
    extinct = ExtinctionStatus.EXTINCT
    return [row for row in rows if index.status(bytes(row[0]), bytes(row[1])) is not extinct]


def change_marks(
    conn: Connection, rid: int, *, after: str | None, upto: str, rows: int
) -> Iterator[tuple[str | None, str]]:
    """Divide a range at every `rows`-th change; the pieces as (after, upto), the last one ends at `upto`."""
    table = tables_of(conn).changelog
    low = after
    while True:
        found = select_by_index(
            conn,
            f"select csn from {table} where rid = :rid and csn > :low and csn < :high"
            " order by csn limit 1 offset :skipped",
            {"rid": rid, "low": low or "", "high": upto, "skipped": rows - 1},
        )
        if not found:
            yield low, upto
            return
        yield low, found[0][0]
        low = found[0][0]


def entry_marks(
    conn: Connection,
    *,
    after: EntryKey = FIRST_KEY,
    upto: EntryKey | None = None,
    rows: int,
    part: Part | None = None,
    buried: str | None = None,
) -> Iterator[tuple[EntryKey, EntryKey | None]]:
    """Divide entries, or those of a part, at every `rows`-th; the pieces as (after, upto).

    The last one ends as the whole does. `buried` as for `digest_entries`.
    """
    table = tables_of(conn).entries
    held, of_part = _held(part, buried)
    low = after
    while True:
        found = select_by_index(
            conn,
            f"select database, key from {table} where {_between(upto)}{held}"
            " order by database, key limit 1 offset :skipped",
            _bounds(low, upto) | of_part | {"skipped": rows - 1},
        )
        high = (bytes(found[0][0]), bytes(found[0][1])) if found else upto
        if high == upto or high is None:
            yield low, upto
            return
        yield low, high
        low = high


def piece_rows(conn: Connection, *, entries: bool, rows_max: int, byte_count: int) -> int:
    """About how many changes, or entries, have so many bytes, by the first of them; `rows_max` at most."""
    tables = tables_of(conn)
    table, value = (tables.entries, "value") if entries else (tables.changelog, "payload")
    size = _size(conn, "database", "key", value)
    [(average,)] = select_by_index(
        conn,
        f"select avg(size) from (select {size} as size from {table} limit :rows) sample",
        {"rows": SAMPLE_ROWS},
    )
    return max(1, min(rows_max, int(byte_count / max(1.0, float(average or 0)))))


def count_upto(
    conn: Connection, ranges: Mapping[int, tuple[str | None, str]], *, entries: bool, rows_max: int
) -> int:
    """How many changes the ranges have, and entries; it ends at `rows_max`."""
    tables = tables_of(conn)
    queries: list[tuple[str, dict[str, Any]]] = [
        (
            f"select 1 from {tables.changelog} where rid = :rid and csn > :low and csn <= :high",
            {"rid": rid, "low": after or "", "high": upto},
        )
        for rid, (after, upto) in ranges.items()
    ]
    if entries:
        queries.append((f"select 1 from {tables.entries}", {}))
    rows = 0
    for query, params in queries:
        if rows >= rows_max:
            break
        bounded = f"select count(*) from ({query} limit :rows) counted"
        rows += conn.execute(bounded, params | {"rows": rows_max - rows})[0][0]
    return rows


def list_changes(conn: Connection, rid: int, *, after: str | None, upto: str, rows_max: int) -> list[Csn]:
    """The first CSNs of a range."""
    rows = select_by_index(
        conn,
        f"select csn from {tables_of(conn).changelog} where rid = :rid and csn > :low and csn <= :high"
        " order by csn limit :rows",
        {"rid": rid, "low": after or "", "high": upto, "rows": rows_max},
    )
    return [Csn(csn) for (csn,) in rows]


def _as_held(rows: list[tuple[Any, ...]], part: Part | None) -> Iterator[tuple[Any, ...]]:
    """Columns csn, kind, database, key and payload of rows with `prev`, as a replica of a part has them."""
    csns, prevs, kinds, databases, keys, payloads = zip(*rows, strict=True)
    if part is not None:
        columns = (csns, prevs, kinds, map(bytes, databases), map(bytes, keys), payloads)
        arrays = [
            pa.array(list(values), field.type) for values, field in zip(columns, record_schema(), strict=True)
        ]
        batch = withhold(pa.RecordBatch.from_arrays(arrays, schema=record_schema()), part)
        names = ("kind", "database", "key", "payload")
        kinds, databases, keys, payloads = (tuple(batch.column(name).to_pylist()) for name in names)
    return iter((csns, kinds, databases, keys, payloads))


def _held(part: Part | None, buried: str | None) -> tuple[str, dict[str, object]]:
    """What is added to a condition over entries, and its parameters."""
    added, params = "", dict[str, object]()
    if part is not None:
        condition, of_part = part.condition()
        added, params = f" and {condition}", dict(of_part)
    if buried is not None:
        added, params = f"{added} and not (is_tombstone and csn <= :buried)", params | {"buried": buried}
    return added, params


def _fitting(sizes: Sequence[tuple[Any, ...]]) -> int:
    """How many rows, one at least, stay within PAGE_BYTES; the size is the last column."""
    total = 0
    for number, row in enumerate(sizes):
        total += row[-1]
        if total > PAGE_BYTES:
            return max(1, number)
    return len(sizes)


def _size(conn: Connection, *columns: str) -> str:
    # Of a value that is kept apart, the server knows its length without reading it.
    function = "octet_length" if conn.dialect.name == "postgresql" else "length"
    return " + ".join(f"coalesce({function}({column}), 0)" for column in columns)


def _between(upto: EntryKey | None) -> str:
    end = "" if upto is None else " and (database, key) <= (:high_database, :high_key)"
    return f"(database, key) > (:low_database, :low_key){end}"


def _bounds(after: EntryKey, upto: EntryKey | None) -> dict[str, Any]:
    found: dict[str, Any] = {"low_database": after[0], "low_key": after[1]}
    if upto is not None:
        found |= {"high_database": upto[0], "high_key": upto[1]}
    return found


def _texts(values: Sequence[str]) -> list[bytes]:
    return [value.encode() for value in values]
