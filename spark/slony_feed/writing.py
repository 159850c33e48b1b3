"""The records of a unit as changes of a replica, block by block, inside the transaction of the unit.

Rules:
- records are taken in their order: of a key that comes twice the later one stays;
- an UPDATE has only the columns that changed: the rest is the entry's. One that changes the key is a delete
  and an insert. A row that is not there for an UPDATE or a DELETE is a gap, and so is one that stands where
  another is moved to: nothing of the unit is written;
- rows of tables that are not fed (any more) are left out: `source` has seen to it that none is missing.
"""

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from spark.events.feed.errors import NeedsTotal
from spark.events.feed.records import Change
from spark.formats.extinction import ExtinctionIndex
from spark.formats.replica import KEY_MAX_BYTES, VALUE_MAX_BYTES, ReplicaTables
from spark.replication.records import local_schema
from spark.replication.replica.appending import Appender
from spark.replication.replica.extinction_index import judge
from spark.slony_feed.cursor import Feed
from spark.slony_feed.errors import FeedKeyExtinct, FeedRowTooLarge
from spark.slony_feed.keys import row_key, script_key, sequence_key, table_key, value_of
from spark.slony_feed.source import Known, TableKnown
from spark.targets.connection import Connection

PAGE_ROWS: Final = 5_000
_LOOKED_UP_AT_ONCE: Final = 100
HELD_BYTES: Final = 8 * 2**20
"""Of values that are not written yet, or were looked up: an UPDATE of a short column has the whole row."""
_SHOWN: Final = 120
Row = dict[str, str | None]


class UnitWriter:
    """Writes the records of one unit, or of a first copy."""

    def __init__(
        self,
        conn: Connection,
        tables: ReplicaTables,
        appender: Appender,
        feed: Feed,
        known: Known,
        index: ExtinctionIndex,
    ) -> None:
        assert conn.in_transaction, "a unit is there or it is not"
        self.records = self.scripts = 0
        self.first_csn: str | None = None
        self._conn, self._tables, self._appender = conn, tables, appender
        self._feed, self._known, self._index = feed, known, index
        self._pending: list[tuple[bytes, bytes | None]] = []
        self._rows: dict[bytes, Row | None] = {}
        self._held_bytes = 0

    def take(self, block: Sequence[Change]) -> None:
        """Write a block of records.

        Raises: NeedsTotal: a record does not fit what is here. FeedRowTooLarge, FeedKeyExtinct; TargetError.
        """
        for begin in range(0, len(block), _LOOKED_UP_AT_ONCE):
            some = block[begin : begin + _LOOKED_UP_AT_ONCE]
            self._look_up(some)
            for change in some:
                self._take(change)
            if self._held_bytes > HELD_BYTES:
                self._write_out()
        self._write_out()

    def _write_out(self) -> None:
        self.flush()
        self._rows, self._held_bytes = {}, 0

    def put(self, key: str, value: bytes | None) -> None:
        """Write an entry, or delete it."""
        name = f"{self._feed.prefix}{key}".encode()
        if len(name) > KEY_MAX_BYTES or (value is not None and len(value) > VALUE_MAX_BYTES):
            size = len(name) if len(name) > KEY_MAX_BYTES else len(value or b"")
            raise FeedRowTooLarge(
                f"a row of {self._table_of(name)} does not fit into an entry: {size:,} bytes; a key has"
                f" at most {KEY_MAX_BYTES:,}, a value {VALUE_MAX_BYTES:,}; leave its table out by `tables`"
            )
        self._pending.append((name, value))
        self._held_bytes += len(value or b"")

    def flush(self) -> None:
        """Write what is pending."""
        if not self._pending:
            return
        keys, values = zip(*self._pending, strict=True)
        self._pending = []
        database = pa.array([self._feed.database] * len(keys), pa.binary())
        columns = [database, pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
        batch = pa.RecordBatch.from_arrays(columns, schema=local_schema())
        judged = judge(self._index, batch)
        extinct = judged.those_of(batch)  # their deletes are the scan's
        refused = extinct.filter(extinct.column("value").is_valid()).column("key")
        if len(refused):
            table = self._table_of(refused[0].as_py())
            raise FeedKeyExtinct(f"a key of {table} was discarded for good by an extinction: leave it out")
        csns = self._appender.append([judged.rest_of(batch)])
        self.first_csn = self.first_csn or (csns[0] if csns else None)

    def remove_others(self) -> None:
        """Delete every live entry of the feed's database that was not written by this writer."""
        self.flush()
        older = "" if self.first_csn is None else " and csn < :first"
        self._delete_live(older, first=self.first_csn)

    def _delete_live(self, condition: str, **params: Any) -> None:
        """Delete live entries of the feed's database, by their keys alone: values may be wide."""
        after = b""
        while True:
            rows = self._conn.execute(
                f"select key from {self._tables.entries} where database = :database and key > :after"
                f" and not is_tombstone{condition} order by key limit {PAGE_ROWS}",
                {"database": self._feed.database, "after": after, **params},
            )
            if not rows:
                return
            self._pending += [(bytes(key), None) for (key,) in rows]
            after = bytes(rows[-1][0])
            self.flush()

    def _take(self, change: Change) -> None:
        if change.kind == "SEQUENCE":
            self._sequence(change)
        elif change.kind == "DDL":
            self._script(change)
        elif change.kind == "UNKNOWN":
            raise NeedsTotal(
                f"record {change.actionseq} of the log is of a kind that this version does not know; begin"
                " again with a first copy"
            )
        elif change.table_id is not None:
            table = self._known.tables.get(change.table_id)
            if table is not None:
                self._row(change, table)
                self.records += 1

    def _row(self, change: Change, table: TableKnown) -> None:
        if (change.schema, change.table) != (table.schema, table.table):
            raise _misfit(change, "has another name than at the first copy")
        if change.kind == "TRUNCATE":
            self._truncate(table)
        elif change.kind in ("INSERT", "COPY"):
            self._write(change, table, dict(change.values or {}))
        elif change.kind == "DELETE":
            key = _key(change, table, change.key)
            if self._rows.get(self._name(key)) is None and not self._is_extinct(key):
                raise _misfit(change, "deletes a row that is not in the replica")
            self._delete(key)
        elif change.kind == "UPDATE":
            self._update(change, table)
        else:
            raise AssertionError(f"a record of kind {change.kind}")

    def _update(self, change: Change, table: TableKnown) -> None:
        key = _key(change, table, change.key)
        before = self._rows.get(self._name(key))
        if before is None:
            raise _misfit(change, "changes a row that is not in the replica")
        row = {**before, **(change.values or {})}
        moved = _key(change, table, row)
        if moved != key:
            if self._rows.get(self._name(moved)) is not None:
                raise _misfit(change, "moves a row onto another")
            self._delete(key)
        self._write(change, table, row)

    def _write(self, change: Change, table: TableKnown, row: Row) -> None:
        key = _key(change, table, row)
        self.put(key, value_of(row))
        self._rows[self._name(key)] = row

    def _delete(self, key: str) -> None:
        self.put(key, None)
        self._rows[self._name(key)] = None

    def _truncate(self, table: TableKnown) -> None:
        """Delete every entry of a table; what this block has written before is there by then."""
        self.flush()
        prefix = self._name(table_key(table.schema, table.table))
        end = prefix[:-1] + b"0"  # which follows "/"
        self._delete_live(" and key >= :prefix and key < :end", prefix=prefix, end=end)
        self._rows = {key: None if key.startswith(prefix) else row for key, row in self._rows.items()}

    def _sequence(self, change: Change) -> None:
        detail = change.detail or {}
        known = self._known.sequences.get(int(detail["sequence_id"]))
        if known is not None:
            self.put(sequence_key(*known), value_of({"last_value": str(detail["last_value"])}))
            self.records += 1

    def _script(self, change: Change) -> None:
        assert change.actionseq is not None, "a row of sl_log_script has one"
        detail = {**(change.detail or {}), "seqno": change.seqno}
        self.put(script_key(change.actionseq), value_of(detail))
        self.scripts += 1
        self.records += 1

    def _table_of(self, name: bytes) -> str:
        """The part of a key that errors may show: who reads errors may not read the data."""
        text = name.decode(errors="replace").removeprefix(self._feed.prefix).split("/", 1)[0]
        return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

    def _name(self, key: str) -> bytes:
        return f"{self._feed.prefix}{key}".encode()

    def _is_extinct(self, key: str) -> bool:
        """Whether a key was discarded for good: its entry may be gone already."""
        columns = [pa.array([self._feed.database], pa.binary()), pa.array([self._name(key)], pa.binary())]
        batch = pa.RecordBatch.from_arrays(columns, names=["database", "key"])
        return bool(judge(self._index, batch).those_of(batch).num_rows)

    def _look_up(self, block: Sequence[Change]) -> None:
        """The rows that some changes begin with, as the replica has them where none before was of them: whole
        those of UPDATEs, those that are deleted or that may stand in the way empty.
        """
        whole, others = set(), set()
        for change in block:
            table = self._known.tables.get(-1 if change.table_id is None else change.table_id)
            if table is None or change.kind not in ("UPDATE", "DELETE"):
                continue
            key = _key(change, table, change.key)
            if change.kind == "DELETE":
                others.add(self._name(key))
                continue
            whole.add(self._name(key))
            moved = _key(change, table, {**(change.key or {}), **(change.values or {})})
            if moved != key:
                others.add(self._name(moved))
        for name, _value in self._looked_up(others - whole - self._rows.keys(), "null"):
            self._rows[name] = {}
        for name, value in self._looked_up(
            {name for name in whole if self._rows.get(name, {}) == {}}, "value"
        ):
            self._rows[name] = json.loads(bytes(value))
            self._held_bytes += len(value)

    def _looked_up(self, wanted: Collection[bytes], value: str) -> Iterator[tuple[bytes, Any]]:
        """Those of some keys that are live, each with what is selected as its value."""
        keys = sorted(wanted)
        for begin in range(0, len(keys), _LOOKED_UP_AT_ONCE):
            some = keys[begin : begin + _LOOKED_UP_AT_ONCE]
            # One look by the key for each: given all keys at once the planner reads the whole table.
            looks = " union all ".join(
                f"select {at}, {value} from {self._tables.entries}"
                f" where database = :database and key = :key{at} and not is_tombstone"
                for at in range(len(some))
            )
            params = {"database": self._feed.database} | {f"key{at}": key for at, key in enumerate(some)}
            yield from ((some[at], found) for at, found in self._conn.execute(looks, params))


def _key(change: Change, table: TableKnown, values: Row | None) -> str:
    found = [(values or {}).get(column) for column in table.columns]
    texts = [value for value in found if value is not None]
    if len(texts) < len(found):
        raise _misfit(change, f"has no value of its key ({', '.join(table.columns)})")
    return row_key(table.schema, table.table, texts)


def _misfit(change: Change, why: str) -> NeedsTotal:
    return NeedsTotal(
        f"record {change.actionseq} ({change.kind} of {change.schema}.{change.table}) {why}: the replica is"
        " not what the log goes on from; begin again with a first copy"
    )
