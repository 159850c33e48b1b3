"""A copy that was cut off, and what happens to both sides before the next session: random cases.

Oracle: in the end the consumer holds what the supplier holds, row for row. And the next session goes on where
the last one ended exactly as long as neither side has lost anything that the copy had reached.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.replication import agreements
from spark.replication.consumer.apply import apply_batch, apply_entries
from spark.replication.proofs.shown_proofs import proof_of, shown_history
from spark.replication.records import SessionMode
from spark.replication.replica import restored
from spark.replication.replica.entries import read_entries
from spark.replication.sessions.calls import Acquired, Resuming
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Acquire, Completion, acquire, complete_total, release
from spark.replication.supplier.decide import Consumer, Outcome, Strategy, Supplier, decide
from spark.replication.supplier.resumable import can_resume, still_holds
from spark.replication.supplier.window import WindowReader
from tests.spark.replication.history_sites import START_S, Machine, session

AGREEMENT = "agr_1_2"
PAGE_ROWS = 4
Place = tuple[bytes, bytes]


@dataclass
class Copy:
    """What the supplier remembers of its unfinished copy, in its metadata."""

    ruv: dict[int, Csn]
    generation: str
    incarnation: str
    sessions: list[str] = field(default_factory=list)
    after: Place | None = None


class Pair:
    """A supplier, a consumer, and a third replica that changes the same keys."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.supplier = Machine(1, folder / "one.db")
        self.consumer = Machine(2, folder / "two.db")
        self.third = Machine(3, folder / "three.db")
        self.known: Copy | None = None
        self.numbers = 0

    def close(self) -> None:
        for machine in (self.supplier, self.consumer, self.third):
            machine.close()

    def now_s(self) -> int:
        now_s = 1 + max(each.clock_s for each in (self.supplier, self.consumer, self.third))
        for machine in (self.supplier, self.consumer, self.third):
            machine.clock_s = now_s
        return now_s

    def write(self, machine: Machine, count: int) -> None:
        for _ in range(count):
            self.now_s()
            machine.write(b"k%02d" % self.random.randrange(60), value=b"%d" % self.random.randrange(1_000))

    # -- the sessions

    def acquire(self, name: str) -> Acquired:
        seen, now_s, known = self.supplier.state(), self.now_s(), self.known
        is_anew = False
        if known is not None and not still_holds(
            seen, generation=known.generation, incarnation=known.incarnation, begun=known.ruv
        ):
            known, is_anew = None, True
        if known is None:
            known = Copy(dict(seen.vectors.ruv), str(seen.replica.generation), seen.replica.incarnation)
        found = self._ask(name, known, is_anew=is_anew, now_s=now_s)
        is_there = found.resume_after is not None or found.is_copied
        applied = found.ruv if found.is_copied else None
        if is_there and not can_resume(
            self.supplier.conn, seen, begun=known.ruv, copied=found.copied, applied=applied
        ):
            known = Copy(dict(seen.vectors.ruv), known.generation, known.incarnation)
            found = self._ask(name, known, is_anew=True, now_s=now_s)
        if found.resume_after is None and not found.is_copied:
            known.after = None
        known.sessions.insert(0, name)
        self.known = known
        return found

    def _ask(self, name: str, known: Copy, *, is_anew: bool, now_s: int) -> Acquired:
        supplier, consumer = self.supplier, self.consumer
        agreements.register_agreement(supplier.conn, AGREEMENT, now_s=now_s)
        history = shown_history(supplier.conn, known.ruv, 1, covers=consumer.state().vectors.ruv)
        request = Acquire(
            name,
            SessionMode.TOTAL,
            "site-1",
            1,
            known.generation,
            known.ruv,
            Csn.of(now_s, 0, 1),
            600.0,
            discard_consumer_changes=True,
            history=history,
            resuming=Resuming(tuple(known.sessions), known.after, is_anew),
        )
        return acquire(consumer.conn, request, now_s=now_s, consent=lambda: True)

    def copy(self, *, pages: int | None) -> tuple[str, int]:
        """A session; after so many pages it is cut off. Where it went on, and how many entries it sent."""
        name = f"rps_{self.numbers}"
        self.numbers += 1
        found = self.acquire(name)
        known = self.known
        assert known is not None
        agreements.take_back(self.supplier.conn, AGREEMENT, known.ruv)
        agreements.acknowledge(self.supplier.conn, AGREEMENT, known.ruv, consumer_rid=2)
        seq, sent, after, is_whole = 0, 0, found.resume_after, found.is_copied
        began = "copied" if is_whole else "anew" if after is None else f"after {after[1].decode()}"
        while not is_whole and (pages is None or seq < pages):
            page = read_entries(self.supplier.conn, after=after, rows_max=PAGE_ROWS)
            is_whole = page.num_rows == 0
            if is_whole:
                break
            seq += 1
            apply_entries(self.consumer.conn, Ticket(name, found.epoch, seq), page, now_s=self.now_s())
            sent += page.num_rows
            after = known.after = (page.column("database")[-1].as_py(), page.column("key")[-1].as_py())
            if self.random.random() < 0.3:
                self.write(self.supplier, 1)
        if pages is None:
            self._finish(name, found.epoch, seq)
        else:
            release(self.consumer.conn, Ticket(name, found.epoch, seq), now_s=self.now_s())
        return began, sent

    def _finish(self, name: str, epoch: int, seq: int) -> None:
        known, supplier, consumer = self.known, self.supplier, self.consumer
        assert known is not None
        ruv = complete_total(
            consumer.conn,
            Ticket(name, epoch, seq),
            ruv=known.ruv,
            generation=known.generation,
            now_s=self.now_s(),
        )
        vectors = supplier.state().vectors
        found = decide(
            Supplier(vectors.ruv, vectors.min, vectors.purged, known.generation),
            Consumer(ruv, known.generation),
            strategy=Strategy.WINDOW,
        )
        assert found.outcome is not Outcome.NEEDS_TOTAL, found
        for batch in WindowReader(supplier.conn, found.windows, rows_max=5, bytes_max=1_000_000):
            seq += 1
            apply_batch(
                consumer.conn,
                Ticket(name, epoch, seq),
                batch,
                now_s=self.now_s(),
                proof=proof_of(supplier.conn, batch),
            )
        completion = Completion(f"inc_{name}", lambda *told: setattr(consumer, "memory", told))
        release(consumer.conn, Ticket(name, epoch, seq), now_s=self.now_s(), complete=completion)

    # -- what goes wrong

    def put_back_supplier(self, kept: tuple[bytes, tuple[str, str | None] | None]) -> None:
        """An older file; what only it had made since is given up, or comes back from the third replica."""
        supplier = self.supplier
        supplier.put_back(kept, metadata=False)
        if supplier.state().replica.status == "RESTORED":
            now_s = self.now_s()
            if self.random.random() < 0.5:
                incarnation = f"inc_given_up_{now_s}"
                restored.accept_loss(supplier.conn, incarnation=incarnation, now_s=now_s)
                supplier.memory = (incarnation, supplier.state().vectors.ruv.get(1))
            else:
                session(self.third, supplier, trusted=(1, 2, 3))
                if supplier.state().replica.status == "RESTORED":
                    restored.accept_loss(supplier.conn, incarnation="inc_given_up", now_s=now_s)
                    supplier.memory = ("inc_given_up", supplier.state().vectors.ruv.get(1))
        assert supplier.state().replica.status == "ONLINE"


def entries(machine: Machine) -> list[tuple[object, ...]]:
    sql = "select database, key, value, csn, is_tombstone from replica_entries order by database, key"
    return machine.conn.execute(sql)


def run(folder: Path, seed: int) -> str:
    """One case; how the second session began."""
    pair = Pair(folder, seed)
    dice = pair.random
    supplier, consumer, third = pair.supplier, pair.consumer, pair.third
    try:
        supplier.write(*(b"k%02d" % number for number in dice.sample(range(60), 40)))
        session(supplier, third)
        third.clock_s = pair.now_s()
        third.write(*(b"k%02d" % number for number in dice.sample(range(60), 10)))
        session(third, supplier)
        old_supplier = supplier.back_up()
        pair.write(supplier, dice.randrange(4))
        pair.copy(pages=dice.randrange(4))
        old_consumer, old_place = consumer.back_up(), pair.known.after if pair.known else None
        if dice.random() < 0.7:
            pair.copy(pages=dice.randrange(1, 4))
        reached = pair.known.after if pair.known else None
        pair.write(supplier, dice.randrange(6))
        pair.write(third, dice.randrange(3))
        fault = dice.choice(["none", "none", "supplier", "consumer", "trim", "third", "both"])
        newest = dict(supplier.state().vectors.ruv)
        if fault in ("supplier", "both"):
            pair.put_back_supplier(old_supplier)
        if fault in ("consumer", "both"):
            consumer.put_back(old_consumer)
        if fault == "third":
            session(third, supplier)
        if fault == "trim":
            supplier.trim(newest[1], 1)
        pair.write(supplier, dice.randrange(6))
        whole = len(entries(supplier))
        began, sent = pair.copy(pages=None)
        judge(fault, began, sent, whole, old_place=old_place, reached=reached)
        assert entries(consumer) == entries(supplier)
        assert consumer.state().vectors.ruv == supplier.state().vectors.ruv
        assert consumer.state().replica.status == "ONLINE"
        # And an ordinary session goes on with it.
        pair.write(supplier, 3)
        session(third, supplier, trusted=(1, 2, 3))
        assert session(supplier, consumer, trusted=(1, 2, 3)) == "UP_TO_DATE"
        assert entries(consumer) == entries(supplier)
        return f"{fault}: {began.split()[0]}"
    finally:
        pair.close()


def judge(
    fault: str, began: str, sent: int, whole: int, *, old_place: Place | None, reached: Place | None
) -> None:
    """The naive rule: on from the last acknowledged key, unless something that was reached is lost."""
    if reached is None:
        assert began == "anew", (fault, began)
    elif fault in ("none", "third", "trim"):
        # Trimming minds the copy: what was changed since it began is still there.
        assert began == f"after {reached[1].decode()}", (fault, began)
        assert sent < whole
    elif fault in ("consumer", "both") and old_place != reached:
        assert began == "anew", (fault, began)


@pytest.mark.parametrize("seed", range(24))
def test_a_copy_that_was_cut_off_ends_as_the_supplier_is(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed)


@pytest.mark.long
def test_a_thousand_copies_that_were_cut_off(tmp_path: Path) -> None:
    began: dict[str, int] = {}
    for seed in range(1_000, 2_000):
        folder = tmp_path / str(seed)
        folder.mkdir()
        how = run(folder, seed)
        began[how] = began.get(how, 0) + 1
    assert {"none: after", "supplier: anew", "consumer: anew", "trim: after"} <= began.keys(), began


def test_a_supplier_that_lost_what_it_had_copied_begins_anew(tmp_path: Path) -> None:
    """It was put back, gave its lost changes up and wrote on: its RUV is past the copy's all the same."""
    pair = Pair(tmp_path, 7)
    try:
        pair.write(pair.supplier, 30)
        kept = pair.supplier.back_up()
        pair.supplier.write(b"k00", value=b"lost")
        pair.copy(pages=2)
        pair.supplier.put_back(kept, metadata=False)
        restored.accept_loss(pair.supplier.conn, incarnation="inc_0", now_s=pair.now_s())
        pair.supplier.memory = ("inc_0", pair.supplier.state().vectors.ruv.get(1))
        pair.now_s()
        assert pair.supplier.write(b"k59", value=b"later")
        began, _ = pair.copy(pages=None)
        assert began == "anew"
        assert entries(pair.consumer) == entries(pair.supplier)
        assert pair.supplier.clock_s > START_S
    finally:
        pair.close()
