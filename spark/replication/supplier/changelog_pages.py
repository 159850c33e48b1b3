"""Pages of the changelog in the order of the CSNs, as columns: a statement and a short look each.

Invariants:
- between two pages nothing is open at the target: no cursor, no transaction, no snapshot;
- a page ends after its rows or with the row that fills its bytes; nothing of it is read again;
- the rows come by the key (rid, csn) alone, whatever the planner believes of the table: a sort would read all
  that is left for every page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from spark.formats.arrow import np, pa
from spark.formats.csn import CSN_CHARS
from spark.formats.replica import tables_of
from spark.replication.errors import ReplicationRefused
from spark.replication.records import record_schema
from spark.targets.connection import Connection

_COLUMNS: Final = "csn, prev, kind, database, key, payload"
"""Of `record_schema`, in its order."""
_BYTES: Final = "octet_length(database) + octet_length(key) + coalesce(octet_length(payload), 0)"
ONLY_BY_KEY: Final = (
    "select set_config('enable_sort', 'off', true), set_config('enable_seqscan', 'off', true),"
    " set_config('enable_bitmapscan', 'off', true)"
)
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_HEADER_BYTES: Final = len(_SIGNATURE) + 8
_TRAILER: Final = b"\xff\xff"
BEFORE_ALL: Final = ""
"""Compares below every CSN."""
AFTER_ALL: Final = "f" * CSN_CHARS
"""Compares above every CSN of a replica that writes."""


class ChangelogDamaged(ReplicationRefused):
    """The changelog holds values that no replica writes."""

    code = "CHANGELOG_DAMAGED"


class ChangelogIncomplete(ReplicationRefused):
    """The RUV names a change that the changelog does not hold: no sending would bring the consumer level."""

    code = "CHANGELOG_INCOMPLETE"

    def __init__(self, *, rid: int, upto: str, last: str | None) -> None:
        super().__init__(
            f"the changes of replica {rid} end with {last or 'none'}, but its RUV says {upto}: some have left"
            " the changelog without a trace in the purge vector"
        )
        self.rid = rid
        self.upto = upto
        self.last = last

    def __reduce__(self) -> tuple[object, ...]:
        return (_incomplete, (self.rid, self.upto, self.last))


def _incomplete(rid: int, upto: str, last: str | None) -> ChangelogIncomplete:
    return ChangelogIncomplete(rid=rid, upto=upto, last=last)


@dataclass(frozen=True, slots=True)
class Page:
    """What a page may hold.

    Args:
        source: a select of record_schema()'s columns without an order, or several in `union all`, each over a
            range of one replica's CSNs.
        params: of `source`.
        bytes_max: of databases, keys and payloads before its last row; the last row may exceed it.
    """

    source: str
    params: Mapping[str, object]
    rows_max: int
    bytes_max: int

    @property
    def bounds(self) -> dict[str, object]:
        """The parameters of the page's statement."""
        return {**self.params, "page_rows": self.rows_max}


def range_source(conn: Connection, *, rid: int, is_open: bool = True) -> str:
    """The changes of a replica above `:after` (from it on where the range is not open), up to `:upto`."""
    above = ">" if is_open else ">="
    return (
        f"select {_COLUMNS} from {tables_of(conn).changelog}"
        f" where rid = {rid} and csn {above} :after and csn <= :upto"
    )


def read_page(conn: Connection, page: Page) -> pa.RecordBatch:
    """Read one page, of record_schema(); empty: there is nothing (more).

    Raises: ChangelogDamaged. TargetError.
    """
    assert not conn.in_transaction, "a page has a look of its own"
    if conn.dialect.name == "postgresql":
        return _read_postgresql(conn, page)
    return _read_stepwise(conn, page)


def page_statement(conn: Connection, page: Page) -> str:
    """The statement of a page."""
    if conn.dialect.name != "postgresql":
        return f"{page.source} order by csn limit :page_rows"
    # The lengths of values that lie outside their row are in the row: what is cut off here was never fetched.
    return (
        f"select {_COLUMNS} from"
        f" (select {_COLUMNS},"
        f" sum({_BYTES}) over (order by csn rows unbounded preceding) - ({_BYTES}) as before"
        f" from ({page.source}) as found order by csn limit :page_rows) as page"
        f" where before < {page.bytes_max} order by csn"
    )


def _read_stepwise(conn: Connection, page: Page) -> pa.RecordBatch:
    """SQLite makes a row when it is asked for it: the page ends by asking no more."""
    rows = []
    left = page.bytes_max
    found = conn.stream(page_statement(conn, page), page.bounds)
    try:
        for row in found:
            rows.append(row)
            left -= len(row[3]) + len(row[4]) + (0 if row[5] is None else len(row[5]))
            if left <= 0:
                break
    finally:
        found.close()
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(record_schema())
    try:
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, record_schema(), strict=True)
        ]
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ChangelogDamaged(f"the changelog holds what no replica writes: {error}") from error
    return pa.RecordBatch.from_arrays(arrays, schema=record_schema())


def _read_postgresql(conn: Connection, page: Page) -> pa.RecordBatch:
    sql = f"copy ({page_statement(conn, page)}) to stdout (format binary)"
    with conn.transaction(read_only=True):
        conn.execute(ONLY_BY_KEY)
        with conn.copy_out(sql, page.bounds) as messages:
            return decode_rows(messages)


def decode_rows(messages: Iterable[bytes]) -> pa.RecordBatch:
    """Read a `COPY ... TO STDOUT (FORMAT BINARY)` of `record_schema`, without a loop over rows.

    Args:
        messages: one for each row, the header before the first or with it, the trailer after the last.
    Source: PostgreSQL's manual, COPY, "Binary Format".
    """
    parts = list(messages)
    assert parts, "a COPY has a header"
    assert parts[0].startswith(_SIGNATURE), "a binary COPY begins with its signature"
    assert parts[-1].endswith(_TRAILER), "a binary COPY has a trailer"
    parts[0] = parts[0][_HEADER_BYTES:]
    parts[-1] = parts[-1].removesuffix(_TRAILER)
    parts = [part for part in parts if part]
    data = np.frombuffer(b"".join(parts), dtype=np.uint8)
    ends = np.cumsum(np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)))
    place = np.concatenate((np.zeros(1, dtype=np.int64), ends[:-1])) if parts else ends
    fields = _big_endian(data, place, size=2)
    assert bool(np.all(fields == len(record_schema()))), "a message is a row"
    place = place + 2
    columns = []
    for field in record_schema():
        lengths = _big_endian(data, place, size=4).astype(np.int32)
        begins = place + 4
        place = begins + np.maximum(lengths, 0)
        columns.append(_cut(data, begins, place, lengths < 0).cast(field.type))
    assert bool(np.all(place == ends)), "a row ends with its message"
    return pa.RecordBatch.from_arrays(columns, schema=record_schema())


_Numbers: TypeAlias = "np.typing.NDArray[np.integer]"


def _big_endian(data: np.typing.NDArray[np.uint8], place: _Numbers, *, size: int) -> _Numbers:
    found: _Numbers = np.zeros(len(place), dtype=np.uint32)
    for index in range(size):
        found = (found << 8) | data[place + index]
    return found


def _cut(
    data: np.typing.NDArray[np.uint8], begins: _Numbers, ends: _Numbers, is_null: np.typing.NDArray[np.bool_]
) -> pa.Array:
    """The values at some places of a buffer: every second one of an array that covers it without gaps."""
    offsets = np.empty(2 * len(begins) + 1, dtype=np.int32)
    offsets[0:-1:2], offsets[1::2] = begins, ends
    offsets[-1] = offsets[-2] if len(begins) else 0
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * len(begins), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return whole.take(pa.array(np.arange(0, 2 * len(begins), 2), mask=is_null))
