"""Replicas without a service, for attacks on histories: whole machines, and sessions between them in short.

What a session does here is what the supplier's task does, with the same functions, without a wire.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from spark.formats.csn import Csn
from spark.formats.part import Part
from spark.replication import agreements
from spark.replication.consumer.apply import apply_batch, apply_entries
from spark.replication.consumer.extinctions import read_records
from spark.replication.errors import ReplicaNotOnline, ReplicaNotWhole, ReplicationRefused, ReplicaWasRestored
from spark.replication.proofs.judging import judge_consumer
from spark.replication.proofs.shown_proofs import proof_of, shown_history
from spark.replication.records import ReplicaStatus, SessionMode, local_schema
from spark.replication.replica import local_write, replica
from spark.replication.replica.entries import read_entries
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Acquire, Completion, acquire, complete_total, release
from spark.replication.supplier.decide import Consumer, Outcome, Strategy, Supplier, decide
from spark.replication.supplier.window import WindowReader
from spark.replication.tombstones.plan import TombstoneRules
from spark.replication.tombstones.units import TombstoneUnit, TombstoneWalk, run_tombstones
from spark.replication.trimming import units as trim
from spark.targets.connection import Connection, SessionLimits, Target, connect

START_S = 1_800_000_000
GENERATION = str(Csn.of(START_S - 100, 0, 1))
DATABASE = b"db"


@dataclass
class Machine:
    """A replica's file, and what the service in front of it remembers: both are put back together or not."""

    rid: int
    path: Path
    clock_s: int = START_S
    memory: tuple[str, str | None] | None = None
    conn: Connection = field(init=False)
    numbers: int = 0

    def __post_init__(self) -> None:
        target = self.target
        if not self.path.exists():
            replica.create_file(target)
        self.open()

    @property
    def target(self) -> Target:
        return Target(f"sqlite:///{self.path}", table_prefix="replica_")

    def open(self) -> None:
        """The service comes up."""
        self.conn = connect(
            self.target, application_name="histories", limits=SessionLimits(lock_timeout_ms=200)
        )
        self.conn.execute("pragma synchronous = off")
        self.conn.execute("pragma journal_mode = memory")
        replica.ensure_layout(self.conn, rid=self.rid, generation=GENERATION, incarnation="inc_0")
        self.compare()

    def close(self) -> None:
        self.conn.close()

    def compare(self) -> None:
        """What a service does before each acquire."""
        with suppress(ReplicaWasRestored):
            replica.check_restored(self.conn, self.expected())

    def expected(self) -> replica.Expected:
        if self.memory is None or self.memory[1] is None:
            seen = self.state()
            self.memory = (seen.replica.incarnation, seen.vectors.ruv.get(self.rid))
        return replica.Expected(*self.memory)

    def state(self) -> replica.Snapshot:
        return replica.snapshot(self.conn)

    def write(self, *keys: bytes, value: bytes = b"value") -> list[str]:
        """Local changes of one request; the CSNs that were answered. Nothing where the replica refuses."""
        self.clock_s += 1
        rows = [{"database": DATABASE, "key": key, "value": value} for key in keys]
        batch = pa.RecordBatch.from_pylist(rows, schema=local_schema())
        try:
            done = local_write.write_group(
                self.conn, [local_write.LocalRequest(batch)], now_s=self.clock_s, expected=self.expected()
            )
        except (ReplicaNotOnline, ReplicaWasRestored):
            return []
        assert self.memory is not None
        self.memory = (self.memory[0], done.own_max)
        [answer] = done.requests
        assert isinstance(answer, local_write.RequestWritten)
        rows_there = self.conn.execute(
            "select csn from replica_changelog"
            " where rid = :rid and csn between :first and :last order by csn",
            {"rid": self.rid, "first": answer.first_csn, "last": answer.last_csn},
        )
        return [csn for (csn,) in rows_there]

    def back_up(self) -> tuple[bytes, tuple[str, str | None] | None]:
        """The whole machine as it is."""
        self.conn.execute("pragma wal_checkpoint(truncate)")
        return self.path.read_bytes(), self.memory

    def put_back(
        self, kept: tuple[bytes, tuple[str, str | None] | None], *, target: bool = True, metadata: bool = True
    ) -> None:
        """Target, metadata or both are as they were."""
        if metadata:
            self.memory = kept[1]
        if target:
            self.close()
            for suffix in ("-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.unlink(f"{self.path}{suffix}")
            self.path.write_bytes(kept[0])
            self.open()
        else:
            self.compare()

    def trim(self, upto: str, rid: int) -> int:
        """Records of a replica id up to a CSN leave the changelog."""
        span = trim.Span(rid, Csn("0" * 20), Csn(upto), 1)
        try:
            return trim.run_trim(self.conn, trim.TrimUnit("job", span, 1, "changelog", has_ledger=False)).rows
        except ReplicaNotWhole:
            return 0

    def bury(self, *, rows_max: int = 2) -> int:
        """All tombstones leave that may, whatever their age; how many."""
        rules, rows = TombstoneRules(2**32 - 1), 0
        walk = TombstoneWalk(rules)
        with suppress(ReplicaNotWhole):
            while span := walk.next_span(self.conn, now_s=self.clock_s, rows_max=rows_max):
                unit = TombstoneUnit("job", span, rules, 1, "entries", self.clock_s, has_ledger=False)
                rows += run_tombstones(self.conn, unit).rows
                walk.passed(span)
        return rows

    def entries(self) -> dict[bytes, tuple[str, bytes | None]]:
        rows = self.conn.execute("select key, csn, value from replica_entries")
        return {key: (csn, value) for key, csn, value in rows}

    def log(self) -> set[str]:
        return {csn for (csn,) in self.conn.execute("select csn from replica_changelog")}


def session(
    supplier: Machine,
    consumer: Machine,
    *,
    mode: SessionMode = SessionMode.INCREMENTAL,
    discard: bool = False,
    rows_max: int = 3,
    batches_max: int | None = None,
    trusted: Collection[int] = (),
    part: Part | None = None,
) -> str:
    """One session from its acquire to its release; its outcome, or the code of what refused it."""
    clock_s = supplier.clock_s = consumer.clock_s = max(supplier.clock_s, consumer.clock_s) + 1
    name = f"rps_{supplier.rid}_{consumer.rid}_{clock_s}_{supplier.numbers}"
    supplier.numbers += 1
    supplier.compare()
    consumer.compare()
    try:
        return _session(
            supplier, consumer, name, mode, discard, rows_max, batches_max, trusted, part, now_s=clock_s
        )
    except ReplicationRefused as error:
        return error.code


def _session(
    supplier: Machine,
    consumer: Machine,
    name: str,
    mode: SessionMode,
    discard: bool,
    rows_max: int,
    batches_max: int | None,
    trusted: Collection[int],
    part: Part | None,
    *,
    now_s: int,
) -> str:
    is_total = mode is SessionMode.TOTAL
    seen = supplier.state()
    if seen.replica.status is not ReplicaStatus.ONLINE:
        return f"SUPPLIER_{seen.replica.status}"
    agreement = f"agr_{supplier.rid}_{consumer.rid}"
    agreements.register_agreement(supplier.conn, agreement, now_s=now_s)
    covers = consumer.state().vectors.ruv if is_total else None
    request = Acquire(
        name,
        mode,
        f"site-{supplier.rid}",
        supplier.rid,
        seen.replica.generation,
        seen.vectors.ruv,
        Csn.of(now_s, 0, supplier.rid),
        600.0,
        discard_consumer_changes=discard,
        history=shown_history(supplier.conn, seen.vectors.ruv, supplier.rid, covers=covers),
        part=part,
        holds=seen.replica.part,
    )
    granted = acquire(consumer.conn, request, now_s=now_s, consent=lambda: True)
    seq = 0
    try:
        unproven = set(granted.unproven)
        if is_total:
            seq = _copy(supplier, consumer, Ticket(name, granted.epoch), seen, part, now_s=now_s)
            ruv, generation = seen.vectors.ruv, seen.replica.generation
            agreements.take_back(supplier.conn, agreement, ruv)
        else:
            ruv, generation = granted.ruv, granted.generation
            if ruv is not None and generation == seen.replica.generation:
                agreements.take_back(supplier.conn, agreement, ruv)
            unproven |= set(
                judge_consumer(
                    supplier.conn, supplier.state(), granted.replica.rid, granted.history, ruv or {}
                )
            )
        agreements.acknowledge(supplier.conn, agreement, dict(ruv or {}), consumer_rid=consumer.rid)
        vectors = supplier.state().vectors
        found = decide(
            Supplier(vectors.ruv, vectors.min, vectors.purged, seen.replica.generation),
            Consumer(ruv, generation),
            strategy=Strategy.WINDOW,
        )
        if found.outcome is Outcome.NEEDS_TOTAL:
            return "NEEDS_TOTAL"
        reader = WindowReader(supplier.conn, found.windows, rows_max=rows_max, bytes_max=1_000_000, part=part)
        for number, batch in enumerate(reader):
            if batches_max is not None and number >= batches_max:
                return "YIELDED"
            seq += 1
            answer = apply_batch(
                consumer.conn,
                Ticket(name, granted.epoch, seq),
                batch,
                now_s=now_s,
                proof=proof_of(supplier.conn, batch),
                trusted_rids=trusted,
            )
            agreements.acknowledge(supplier.conn, agreement, answer.ruv, consumer_rid=consumer.rid)
        if is_total:
            completion = Completion(f"inc_{name}", lambda *told: setattr(consumer, "memory", told))
            release(consumer.conn, Ticket(name, granted.epoch, seq), now_s=now_s, complete=completion)
        return "UNPROVEN" if unproven else "UP_TO_DATE"
    finally:
        with suppress(ReplicationRefused):
            release(consumer.conn, Ticket(name, granted.epoch, seq), now_s=now_s)


def _copy(
    supplier: Machine,
    consumer: Machine,
    ticket: Ticket,
    seen: replica.Snapshot,
    part: Part | None,
    *,
    now_s: int,
) -> int:
    seq = 0
    extinctions = read_records(supplier.conn)
    if extinctions.num_rows:
        seq += 1
        apply_batch(consumer.conn, replace(ticket, batch_seq=seq), extinctions, now_s=now_s)
    for place in [(None, None)] if part is None else [(p.database, p.prefix) for p in part.prefixes]:
        page = read_entries(supplier.conn, after=None, rows_max=10_000, database=place[0], prefix=place[1])
        if page.num_rows:
            seq += 1
            apply_entries(consumer.conn, replace(ticket, batch_seq=seq), page, now_s=now_s)
    complete_total(
        consumer.conn,
        replace(ticket, batch_seq=seq),
        ruv=seen.vectors.ruv,
        generation=str(seen.replica.generation),
        now_s=now_s,
        buried=seen.replica.buried,
    )
    return seq
