"""Captures stranded rows anew, within the transaction that removes them.

Invariants:
- A row counts as captured only by a row of sym_data that this transaction sees behind its touch, of the same
  trigger and the same key. The row of the table is locked before, so nobody else can have captured that key
  meanwhile.
- A delete is copied first, before any row is locked, and its row is looked for afterwards: who is just
  writing to the table is waited for. A row that has come by then is touched behind the copy; one that comes
  later is captured later. So the last of a key's captures says what is there.

Source: DataService.reCaptureData of SymmetricDS 3.15, which sends old inserts again; this does not.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from spark.formats.symmetricds import DATA, TimeEncoding
from spark.purge.cutoff import CutoffValue, convert, local_reading
from spark.purge.findings import Finding
from spark.rows.sql import Sql
from spark.targets.connection import Connection, target_now
from spark.targets.errors import TargetError, TargetRowConflict
from spark.upkeep.recapture.judging import Judge, Stranded, are_there, names_of
from spark.upkeep.recapture.tables import Source, SourceTable, qualified
from spark.upkeep.recapture.texts import DELETE, UPDATE, key_of

SAVEPOINT: Final = "lethe_recapture"
_MYSQL_UTC: Final = "set time_zone = '+00:00'"


@dataclass(frozen=True, slots=True)
class Wish:
    """A row of a captured table, and who has captured it."""

    source: Source
    key: tuple[str, ...]
    table: SourceTable
    values: tuple[Any, ...]

    @property
    def at(self) -> Sql:
        """True for it."""
        return self.table.at(self.values)


@dataclass(frozen=True, slots=True)
class Recapture:
    """One unit's captures.

    Attributes:
        columns: of sym_data.
        cutoff: of the purge; tells how the target keeps times.
        time_zone: of naive columns of the target.
    """

    conn: Connection
    columns: Sequence[str]
    cutoff: CutoffValue
    time_zone: str

    def run(self, rows: Sequence[Stranded]) -> frozenset[int]:
        """Capture what can be captured; the data ids of rows that are captured anew."""
        assert self.conn.in_transaction, "what is captured is committed with what is removed"
        asked = self._asked(rows)
        with local_clock(self.conn, self.time_zone):
            copies = self._copies(asked)
            for table in dict.fromkeys(wish.table for wish in copies):
                self._wait_for_writers(table)
            found = [self._captured(wish, each, copies.get(wish, {})) for wish, each in asked.items()]
        return frozenset(data_id for ids in found for data_id in ids)

    def _asked(self, rows: Sequence[Stranded]) -> dict[Wish, list[Stranded]]:
        """What has to be captured, and the stranded rows for which; without those that cannot be."""
        judge, found = Judge(self.conn), dict[Wish, list[Stranded]]()
        for row in rows:
            wanted = judge.wanted(row)
            if not isinstance(wanted, Finding):
                assert row.source is not None, "a table was found by it"
                found.setdefault(Wish(row.source, row.key, *wanted), []).append(row)
        return found

    def _copies(self, asked: Mapping[Wish, Sequence[Stranded]]) -> dict[Wish, dict[str, int]]:
        """Deletes of rows that are not there, captured again: trigger to data id."""
        deleted = {
            wish: {row.trigger: row.data_id for row in rows if row.event == DELETE and row.trigger}
            for wish, rows in asked.items()
        }
        wishes = [wish for wish, by_trigger in deleted.items() if by_trigger]
        there = are_there(self.conn, [(wish.table, wish.values) for wish in wishes])
        now = self._now()
        return {
            wish: {trigger: self._copy(data_id, now) for trigger, data_id in deleted[wish].items()}
            for wish, is_there in zip(wishes, there, strict=True)
            if not is_there
        }

    def _captured(self, wish: Wish, rows: Sequence[Stranded], copies: Mapping[str, int]) -> list[int]:
        """Touch a row, or let the copies of its deletes stand: the stranded rows that are captured anew so.

        Where a row has come that nothing captures, a copy would be the last word: it is removed.
        """
        touched = self._touch(wish)
        if touched is None:
            return [row.data_id for row in rows if row.event == DELETE and row.trigger in copies]
        for trigger, made in copies.items():
            if trigger not in touched:
                self.conn.execute(f"delete from {self._data} where data_id = :made", {"made": made})
        return [row.data_id for row in rows if row.trigger in touched]

    def _touch(self, wish: Wish) -> frozenset[str] | None:
        """Set a column of a row to itself: the triggers that have captured it; None: it is not there."""
        conn, table, at = self.conn, wish.table, wish.at
        lock = "" if conn.dialect.name == "sqlite" else " for update"
        if not conn.execute(f"select 1 from {table.name} where {at.text}{lock}", dict(at.bound)):
            return None
        [(last,)] = conn.execute(f"select coalesce(max(d.data_id), 0) from {self._data} d")
        is_done = self._tried(
            f"update {table.name} set {table.touched} = {table.touched} where {at.text}", at.bound
        )
        return frozenset(self._captured_since(int(last), wish)) if is_done else frozenset()

    def _tried(self, statement: str, bound: Mapping[str, Any]) -> bool:
        """Whether a statement was done: one that a trigger or a constraint refuses must not hold back others.

        Raises: TargetError: it was no such refusal.
        """
        self.conn.execute(f"savepoint {SAVEPOINT}")
        try:
            self.conn.execute(statement, bound)
        except TargetError as error:
            if not isinstance(error, TargetRowConflict) and type(error) is not TargetError:
                raise
            self.conn.back_to(SAVEPOINT)
            return False
        self.conn.execute(f"release savepoint {SAVEPOINT}")
        return True

    def _captured_since(self, last: int, wish: Wish) -> Iterator[str]:
        """The triggers of the rows of sym_data that are there for a key, behind a data id."""
        rows = self.conn.execute(
            "select d.event_type, d.row_data, d.pk_data, d.old_data, h.trigger_id, h.column_names,"
            " h.pk_column_names, h.source_catalog_name, h.source_schema_name"
            f" from {self._data} d join {self._history} h on h.trigger_hist_id = d.trigger_hist_id"
            " where d.data_id > :last and h.source_table_name = :name",
            {"last": last, "name": wish.source[2]},
        )
        for event, row_data, pk_data, old_data, trigger, columns, key, *place in rows:
            names = names_of(key)
            texts = key_of(
                UPDATE if event not in ("I", "D") else event,
                row_data=row_data,
                pk_data=pk_data,
                old_data=old_data,
                columns=names_of(columns),
                key=names,
            )
            is_there = qualified(self.conn, (place[0], place[1], wish.source[2])) == wish.table.name
            if texts is None or set(names) != set(wish.key) or not is_there:
                continue
            ordered = [texts[names.index(each)] for each in wish.key]
            if wish.table.values(ordered) == wish.values:
                yield str(trigger)

    # -- deletes of rows that are not there

    def _copy(self, data_id: int, now: CutoffValue) -> int:
        """Capture a delete again: the same row of sym_data under a new id and of now; the new id."""
        conn, quote = self.conn, self.conn.dialect.quote
        same = ", ".join(quote(name) for name in self.columns if name not in ("data_id", "create_time"))
        statement = (
            f"insert into {self._data} ({same}, create_time)"
            f" select {same}, {self._now_mark} from {self._data} where data_id = :data_id"
        )
        bound = {"data_id": data_id, "now": now}
        if conn.dialect.name == "mysql":
            conn.execute(statement, bound)
            [(made,)] = conn.execute("select last_insert_id()")
        else:
            [(made,)] = conn.execute(f"{statement} returning data_id", bound)
        return int(made)

    def _wait_for_writers(self, table: SourceTable) -> None:
        """PostgreSQL: nobody who began to write to a table before this has not ended; the lock is given back.

        Elsewhere the read that locks a row waits for who has just written it.
        """
        if self.conn.dialect.name == "postgresql":
            self.conn.execute(f"savepoint {SAVEPOINT}")
            self.conn.execute(f"lock table {table.name} in share mode")
            self.conn.back_to(SAVEPOINT)

    # -- names and times

    @property
    def _data(self) -> str:
        target = self.conn.target
        return self.conn.dialect.qualify(target.schema, f"{target.table_prefix}{DATA}")

    @property
    def _history(self) -> str:
        target = self.conn.target
        return self.conn.dialect.qualify(target.schema, f"{target.table_prefix}trigger_hist")

    @property
    def _now_mark(self) -> str:
        if self.conn.dialect.name != "postgresql":
            return ":now"
        aware = isinstance(self.cutoff, datetime) and self.cutoff.tzinfo is not None
        return "cast(:now as timestamptz)" if aware else "cast(:now as timestamp)"

    def _now(self) -> CutoffValue:
        encoding: TimeEncoding = "timestamp"
        if isinstance(self.cutoff, int):
            encoding = "epoch_ms"
        elif isinstance(self.cutoff, str):
            local = local_reading(target_now(self.conn), time_zone=self.time_zone)
            return local.isoformat(sep=" ", timespec="milliseconds")
        elif self.cutoff.tzinfo is not None:
            encoding = "timestamptz"
        return convert(target_now(self.conn), time_zone=self.time_zone, encoding=encoding)


@contextmanager
def local_clock(conn: Connection, time_zone: str) -> Iterator[None]:
    """Triggers write the time of day of the session: within the block, that of the target's columns.

    Behind an error it stays so: see `clock_kept`.
    """
    if conn.dialect.name == "postgresql":
        _set_zone(conn, time_zone)
        yield
        _set_zone(conn, "UTC")
    elif conn.dialect.name == "mysql":
        offset = target_now(conn).astimezone(ZoneInfo(time_zone)).strftime("%z")
        conn.execute("set time_zone = :zone", {"zone": f"{offset[:3]}:{offset[3:5]}"})
        yield
        conn.execute(_MYSQL_UTC)
    else:
        yield


@contextmanager
def clock_kept(conn: Connection) -> Iterator[None]:
    """Around a transaction: the session's own zone again where it failed; a session that cannot is closed."""
    is_done = False
    try:
        yield
        is_done = True
    finally:
        if not is_done and conn.dialect.name == "mysql":  # PostgreSQL's ended with the transaction
            try:
                conn.execute(_MYSQL_UTC)
            except TargetError:
                conn.close()


def _set_zone(conn: Connection, name: str) -> None:
    conn.execute("select set_config('TimeZone', :name, true)", {"name": name})
