"""A consumer for tests: its layout on either database, sessions with it, batches for it, what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark.formats.csn import RID_MAX, Csn
from spark.formats.replica import COLUMNS, tables_of
from spark.replication.consumer.apply import Applied, apply_batch, apply_entries
from spark.replication.records import SessionMode, entry_schema, record_schema
from spark.replication.replica.replica import create_file, ensure_layout
from spark.replication.sessions.calls import Resuming
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Acquire, Acquired, Completion, Released, acquire, release
from spark.targets.connection import Connection, Target
from tests.spark.replication.replica_tables import NOW_S, csn, opened, postgresql_target

SESSION = "rps_00000000000000000000000001"
OTHER = "rps_00000000000000000000000002"
GENERATION = csn(0, 1)
OWN_RID = 9
HELD = ("replica", "generator", "ruv", "changelog", "entries", "dead_letters")
"""What a refused request must leave as it was; the session's row is looked at by itself."""

Row = tuple[Csn, Csn | None, str, bytes, bytes, bytes | None]


def target_of(request: pytest.FixtureRequest, dialect: str, folder: Path) -> Target:
    """A place for a replica; its file exists."""
    if dialect == "postgresql":
        return postgresql_target(request.getfixturevalue("postgresql_url"))
    target = Target(f"sqlite:///{folder / 'consumer.db'}", table_prefix="replica_")
    create_file(target)
    return target


@dataclass
class ConsumerSide:
    """One consumer behind one connection; its clock stands still."""

    conn: Connection
    now_s: int = NOW_S

    def acquire(
        self,
        session_id: str = SESSION,
        *,
        mode: SessionMode = SessionMode.INCREMENTAL,
        rid: int = 1,
        generation: str | None = GENERATION,
        ruv: Mapping[int, Csn] | None = None,
        csn_now: Csn | None = None,
        lease_s: float = 60.0,
        discard: bool = False,
        granted: bool = True,
        resuming: Resuming = Resuming(),  # noqa: B008 -- a value
    ) -> Acquired:
        """A supplier asks for the lease; `granted`: to discard, should it ask for that."""
        request = Acquire(
            session_id=session_id,
            mode=mode,
            supplier_store=f"supplier-{rid}",
            supplier_rid=rid,
            generation=generation,
            ruv=dict(ruv or {}),
            csn_now=csn_now or Csn.of(self.now_s, 0, rid),
            lease_s=lease_s,
            discard_consumer_changes=discard,
            resuming=resuming,
        )
        return acquire(self.conn, request, now_s=self.now_s, consent=lambda: granted)

    def apply(self, rows: Sequence[Row], *, epoch: int, seq: int, session_id: str = SESSION) -> Applied:
        """A batch of changes arrives."""
        ticket = Ticket(session_id, epoch, seq)
        # Made by hand, they come without proofs: test_histories.py is about those.
        return apply_batch(self.conn, ticket, records(rows), now_s=self.now_s, trusted_rids=range(RID_MAX))

    def copy(
        self,
        rows: Sequence[tuple[bytes, bytes, bytes | None, Csn]],
        *,
        epoch: int,
        seq: int,
        session_id: str = SESSION,
    ) -> Applied:
        """A batch of entries arrives."""
        ticket = Ticket(session_id, epoch, seq)
        return apply_entries(self.conn, ticket, entries(rows), now_s=self.now_s)

    def release(
        self, *, epoch: int, session_id: str = SESSION, complete: Completion | None = None
    ) -> Released:
        """The supplier gives the lease back."""
        return release(self.conn, Ticket(session_id, epoch), now_s=self.now_s, complete=complete)

    def expire(self) -> None:
        """The lease has run out."""
        with self.conn.transaction():
            self.conn.execute(f"update {tables_of(self.conn).session} set expires_at_s = 1")

    def status(self) -> tuple[str, str | None]:
        """Status, and what must come back."""
        [row] = self.rows("replica")
        return row[5], row[6]

    def ruv(self) -> dict[int, str]:
        """The greatest CSN of each replica."""
        rows = self.conn.execute(f"select rid, max_csn from {tables_of(self.conn).ruv}")
        return dict(rows)

    def entries(self) -> dict[tuple[bytes, bytes], tuple[bytes | None, str]]:
        """Value and CSN by key; a tombstone has no value."""
        rows = self.conn.execute(f"select database, key, value, csn from {tables_of(self.conn).entries}")
        return {
            (bytes(database), bytes(key)): (None if value is None else bytes(value), at)
            for database, key, value, at in rows
        }

    def logged(self) -> list[str]:
        """The CSNs of the changelog."""
        rows = self.conn.execute(f"select csn from {tables_of(self.conn).changelog} order by rid, csn")
        return [text for (text,) in rows]

    def held(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table that a refusal must not touch."""
        return {table: self.rows(table) for table in HELD}

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """All rows of one table, in one order."""
        names = ", ".join(line.split()[0] for line in COLUMNS[table] if not line.startswith("primary key"))
        found = self.conn.execute(f"select {names} from {getattr(tables_of(self.conn), table)}")
        plain = [tuple(bytes(one) if isinstance(one, memoryview) else one for one in row) for row in found]
        return sorted(plain, key=repr)

    @contextmanager
    def unchanged(self, *, session: bool = True) -> Iterator[None]:
        """Nothing may be another row afterwards."""
        before = self.held(), self.rows("session") if session else None
        yield
        assert (self.held(), self.rows("session") if session else None) == before


@contextmanager
def consumer_side(
    target: Target, *, rid: int = OWN_RID, generation: str | None = GENERATION
) -> Iterator[ConsumerSide]:
    """A consumer with its layout."""
    with opened(target) as conn:
        ensure_layout(conn, rid=rid, generation=generation, incarnation="inc_first")
        yield ConsumerSide(conn)


def change(at: Csn, prev: Csn | None, *, key: bytes = b"key", value: bytes | None = b"value") -> Row:
    """One change of one key."""
    return (at, prev, "CHANGE", b"db", key, value)


def chain(
    rid: int,
    numbers: Sequence[int],
    *,
    after: Csn | None = None,
    csn_of: Callable[[int, int], Csn] = csn,
) -> list[Row]:
    """Changes of one replica, each linked to the one before; a key each."""
    rows = []
    for number in numbers:
        at = csn_of(number, rid)
        rows.append(change(at, after, key=b"%d/%d" % (rid, number), value=b"%d" % number))
        after = at
    return rows


def records(rows: Sequence[Row]) -> pa.RecordBatch:
    """Records as they were decoded."""
    return _batch(rows, record_schema())


def entries(rows: Sequence[tuple[bytes, bytes, bytes | None, Csn]]) -> pa.RecordBatch:
    """Entries as they were decoded."""
    return _batch([(*row, row[2] is None) for row in rows], entry_schema())


def _batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
