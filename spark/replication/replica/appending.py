"""Own changes of a replica, appended inside a transaction of the caller: one batch, or many.

Invariants:
- CSNs are given under the lock of the generator's row, which is held to the commit: they commit in their
  order, and the RUV never passes a change that is not there;
- each batch leaves changelog, entries, RUV and generator as they stand behind its last change.
Source: design.md, Replication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark.formats.arrow import pa
from spark.formats.csn import FIELD_MAX, Csn
from spark.formats.replica import ReplicaTables
from spark.replication.csn_generator import GeneratorState, adjust, next_csn, rise
from spark.replication.proofs.chain import chain_of, seed_of
from spark.replication.records import RecordKind, ReplicaRow, ReplicaStatus, local_schema, record_schema
from spark.replication.replica.extinction_index import mark_of
from spark.replication.replica.replica import advance_ruv, save_generator, save_replica
from spark.replication.replica.upsert import clock_of, entries_of, put_changes, put_entries
from spark.targets.connection import Connection


@dataclass(frozen=True, slots=True)
class Own:
    """The replica's own line of the RUV, the target's clock, and which extinctions there are.

    Attributes:
        newest: the greatest CSN of the RUV, of whatever replica.
    """

    max_csn: str | None
    purged_csn: str | None
    now_s: int
    extinctions: str | None
    logged_chain: bytes | None = None
    kept_chain: bytes | None = None
    newest: str | None = None

    def chain_before(self, rid: int) -> bytes | None:
        """The value that the next own change follows."""
        if self.max_csn is None:
            return seed_of(rid)
        found = self.logged_chain if self.logged_chain is not None else self.kept_chain
        return None if found is None else bytes(found)


class Appender:
    """Writes batches of own changes, under `lock_replica`, one behind the other.

    Args:
        row, state, own: as they stand under the lock; they move on with each batch.
    """

    def __init__(
        self,
        conn: Connection,
        tables: ReplicaTables,
        row: ReplicaRow,
        state: GeneratorState,
        own: Own,
        *,
        now_s: int,
    ) -> None:
        assert conn.in_transaction, "the changes and the RUV share one transaction"
        self.own = own
        self._conn, self._tables, self._row, self._state = conn, tables, row, state
        self._now_s = now_s

    def pass_over(self, csn: Csn) -> None:
        """Give only CSNs above one of another replica.

        Raises: ClockSkewExceeded, TimestampOutOfRange.
        """
        self._state = adjust(self._state, remote=csn, now_s=self._now_s)

    def append(self, batches: Sequence[pa.RecordBatch]) -> list[str]:
        """Write changes of local_schema() in their order; the CSN of each.

        Raises: ClockSkewExceeded, TimestampOutOfRange.
        """
        count = sum(batch.num_rows for batch in batches)
        if not count:
            return []
        conn, tables, own, row = self._conn, self._tables, self.own, self._row
        state = self._state
        if own.newest is not None:
            # Whatever became of generator and clock: no CSN is given at or below one that is in the RUV. Its
            # writer can see what is here, and would lose against it.
            state = rise(state, above=Csn(own.newest), now_s=self._now_s)
        if row.generation is None:
            [generation], state = give_csns(state, 1, now_s=self._now_s)
            row = replace(row, generation=generation, status=ReplicaStatus.ONLINE)
            save_replica(conn, tables, row)
        csns, state = give_csns(state, count, now_s=self._now_s)
        records = _records(batches, csns, before=own.max_csn or own.purged_csn)
        chain, heads = chain_of(records, {row.rid: own.chain_before(row.rid)})
        put_changes(conn, tables, records, logged_at_s=own.now_s, chain=chain)
        put_entries(conn, tables, entries_of(records))
        advance_ruv(conn, tables, row.rid, first=csns[0], last=csns[-1], now_s=own.now_s)
        save_generator(conn, tables, state)
        self._state, self._row = state, row
        self.own = replace(
            own, max_csn=csns[-1], newest=csns[-1], logged_chain=heads[row.rid], kept_chain=None
        )
        return csns


def give_csns(state: GeneratorState, count: int, *, now_s: int) -> tuple[list[str], GeneratorState]:
    """`next_csn` as often as wanted: the same CSNs, the same state.

    Raises: as `next_csn`.
    """
    given: list[str] = []
    while len(given) < count:
        csn, state = next_csn(state, now_s=now_s)
        given.append(csn)
        # The rest of this second's numbers follow without another look at the clock.
        more = min(count - len(given), FIELD_MAX - state.sequence)
        head, tail = csn[:8], csn[12:]
        given += [f"{head}{number:04x}{tail}" for number in range(state.sequence, state.sequence + more)]
        state = replace(state, sequence=state.sequence + more)
    return given, state


def read_own(conn: Connection, tables: ReplicaTables, rid: int) -> Own:
    """What a local writer must know, under `lock_replica`; one statement."""
    rows = conn.execute(
        f"select u.max_csn, u.purged_csn, {clock_of(conn)}, {mark_of(conn, tables)}, c.chain, p.chain,"
        f" (select max(max_csn) from {tables.ruv})"
        f" from (select 1 as one) o left join {tables.ruv} u on u.rid = :rid"
        f" left join {tables.changelog} c on c.rid = :rid and c.csn = u.max_csn"
        f" left join {tables.points} p on p.rid = :rid and p.csn = u.max_csn",
        {"rid": rid},
    )
    return Own(*rows[0])


def _records(batches: Sequence[pa.RecordBatch], csns: list[str], *, before: str | None) -> pa.RecordBatch:
    assert all(batch.schema.equals(local_schema()) for batch in batches), "changes as clients write them"
    changes = pa.Table.from_batches(batches)
    columns = [pa.concat_arrays(column.chunks) for column in changes.columns]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(csns, pa.string()),
            pa.array([before, *csns[:-1]], pa.string()),
            pa.repeat(pa.scalar(RecordKind.CHANGE.value), len(csns)),
            *columns,
        ],
        schema=record_schema(),
    )
