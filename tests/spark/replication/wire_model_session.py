"""A small supplier for the wire model: the protocol of sessions, one step at a time, over a bad network.

A session is a generator: each `yield` is a point where anything else may happen. What it must remember over
a restart is in its Record; all else is lost with the generator. Requests in flight belong to the network.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication import agreements, csn_generator, dead_letters
from spark.replication.consumer import apply
from spark.replication.proofs.judging import judge_consumer
from spark.replication.proofs.shown_proofs import proof_of, shown_history
from spark.replication.proofs.values import BatchProof
from spark.replication.records import ReplicaStatus, SessionMode, Snapshot, record_schema
from spark.replication.replica import replica
from spark.replication.replica.entries import read_entries
from spark.replication.session_errors import (
    BatchGap,
    ConsumerAhead,
    PrevGap,
    ReplicaBusy,
    SessionEnded,
    SessionNotFound,
    SessionRefused,
    StaleEpoch,
    TotalRuvDiffers,
)
from spark.replication.sessions import session, supplying
from spark.replication.sessions.row import Ticket
from spark.replication.supplier import classic, window
from spark.replication.supplier.changelog_pages import ChangelogIncomplete
from spark.replication.supplier.decide import Consumer, Decision, Outcome, Strategy, Supplier, Window, decide
from spark.replication.supplier.resumable import is_below_bound
from spark.targets.connection import Connection
from spark.targets.errors import TargetRowConflict
from tests.spark.replication.wire_model_site import Site, Violation

AHEAD_MAX_S = 86_400
"""Clocks of the model differ by hours: its sites let them, as `replication.clock.ahead.max: P1D` does."""

Steps = Generator[None, None, None]
IN_FLIGHT = 4
TRIES_MAX = 6
WINDOWS_MAX = 60


class Ended(Exception):
    """A session is over; `outcome` says how."""

    def __init__(self, outcome: str, detail: object = "") -> None:
        super().__init__(f"{outcome}: {detail}")
        self.outcome = outcome


class Unanswered(Exception):
    """A request or its answer was lost, or the consumer failed in it."""


class Halted(Exception):
    """The consumer has refused a record."""


class InjectedFault(Exception):
    """Something broke inside a transaction."""


@dataclass
class Record:
    """What outlives the supplier's process."""

    session_id: str
    mode: SessionMode
    strategy: Strategy
    discard: bool = False
    total_ruv: dict[int, Csn] | None = None
    generation: str | None = None
    is_begun: bool = False
    is_complete: bool = False
    buried: Csn | None = None
    epoch: int = 0

    def met(self, buried: Csn | None) -> None:
        self.buried = max(filter(None, (self.buried, buried)), default=None)


@dataclass
class Flight:
    """A batch on its way, with its answer or its trouble when there is one."""

    ticket: Ticket
    batch: pa.RecordBatch
    proof: BatchProof | None = None
    attempts: int = 0
    answer: apply.Applied | None = None
    trouble: Exception | None = None

    @property
    def is_open(self) -> bool:
        return self.answer is None and self.trouble is None


@dataclass
class Rules:
    """What a naive supplier does otherwise; see the variants."""

    decide: Callable[[Link, Supplier, Consumer], Decision] = lambda link, supplier, consumer: decide(
        supplier, consumer, strategy=link.strategy
    )
    total_from_state_behind: bool = False
    before_complete: Callable[[Lease], None] = lambda _: None
    note_supplying: Callable[[Connection, str], None] = supplying.note_supplying


@dataclass
class Link:
    """An agreement, and the session that works for it now."""

    agreement: str
    supplier: Site
    consumer: Site
    random: Random
    rules: Rules
    loss: float = 0.0
    record: Record | None = None
    steps: Steps | None = None
    flights: list[Flight] = field(default_factory=list)
    ghosts: list[Flight] = field(default_factory=list)
    told: dict[int, Csn] = field(default_factory=dict)
    sent: int = 0
    copies: int = 0

    @property
    def strategy(self) -> Strategy:
        """Of the session that works now."""
        assert self.record is not None
        return self.record.strategy

    @property
    def is_plain(self) -> bool:
        """Nothing was put back, and the supplier is what it was: no hole has an excuse."""
        return not self.supplier.oracle.lines and self.supplier.copies == self.copies

    def drop(self) -> None:
        """The supplier's process ends; what it has sent may arrive all the same."""
        if self.steps is not None:
            self.steps.close()
        self.steps = None
        self.ghosts += [flight for flight in self.flights if flight.is_open]
        self.flights = []

    # -- requests

    def call(self, request: Callable[[], Any]) -> Any:
        """One request that is answered or not, carried out or not."""
        chance = self.random.random()
        if chance < self.loss:
            raise Unanswered("lost request")
        try:
            answer = request()
        except InjectedFault as error:
            raise Unanswered("the consumer failed") from error
        if chance < 2 * self.loss:
            raise Unanswered("lost reply")
        return answer

    def deliver(self, flight: Flight) -> None:
        """A batch arrives; what the consumer says is kept in it.

        Raises: Violation: it was applied twice.
        """
        schema_is_records = "prev" in flight.batch.schema.names
        act = apply.apply_batch if schema_is_records else apply.apply_entries
        try:
            found = act(
                self.consumer.conn,
                flight.ticket,
                flight.batch,
                now_s=self.consumer.clock_s,
                ahead_max_s=AHEAD_MAX_S,
                **({"proof": flight.proof} if schema_is_records else {}),
            )
        except TargetRowConflict as error:
            raise Violation("APPLIED_TWICE", error) from error
        except InjectedFault:
            flight.attempts += 1
            if flight.attempts >= TRIES_MAX:
                flight.trouble = Unanswered("the consumer fails")
        except SessionRefused as error:
            if not isinstance(error, BatchGap) or self.random.random() < 0.2:
                flight.trouble = error
            self._excused(error)
        else:
            counted = found.applied + found.covered + len(found.rejected) + found.halted
            if counted != flight.batch.num_rows:
                raise Violation("BATCH_MISCOUNTED", found)
            flight.answer = found

    def _excused(self, error: SessionRefused) -> None:
        if isinstance(error, PrevGap) and self.is_plain:
            raise Violation("GAP_WITHOUT_ROLLBACK", error.detail)


def attempt(link: Link) -> Steps:
    """Work for the session of a link until it ends.

    Raises: Ended, always. Violation.
    """
    tries = 0
    halted: set[int] = set()
    gaps = 0
    while True:
        sent = link.sent
        yield
        try:
            yield from _lease(link, halted)
        except Ended:
            _give_back(link)
            raise
        except Halted:
            continue
        except Unanswered as error:
            trouble: Exception = error
        except (StaleEpoch, SessionEnded, SessionNotFound, BatchGap, agreements.AgreementUnknown) as error:
            trouble = error
        except PrevGap as error:
            trouble, gaps = error, gaps + 1
            if gaps >= 3:
                raise Ended("NEEDS_TOTAL", error.detail) from error
        except ReplicaBusy as error:
            raise Ended("BUSY") from error
        except ConsumerAhead as error:
            raise Ended("CONSUMER_AHEAD", error.facts) from error
        except SessionRefused as error:
            raise Ended(error.code, error.detail) from error
        finally:
            link.ghosts += [flight for flight in link.flights if flight.is_open]
            link.flights = []
        tries = 0 if link.sent > sent else tries + 1
        if tries >= TRIES_MAX:
            raise Ended("UNANSWERED", trouble)


def _lease(link: Link, halted: set[int]) -> Steps:
    """Acquire, bring the consumer level, release."""
    supplier, record = link.supplier, link.record
    assert record is not None
    agreements.register_agreement(supplier.conn, link.agreement, now_s=supplier.clock_s)
    is_total = record.mode is SessionMode.TOTAL and not record.is_complete
    if is_total:
        link.rules.note_supplying(supplier.conn, record.session_id)
        yield
    try:
        seen = _look(link)
        link.copies = supplier.copies
        yield
        granted = link.call(lambda: _acquire(link, seen, is_total=is_total))
    except (SessionRefused, Ended):
        if is_total:
            supplying.end_supplying(supplier.conn, record.session_id)
        raise
    if is_total:
        supplying.end_supplying(supplier.conn, record.session_id)
    record.epoch = granted.epoch
    if is_total:
        record.is_begun = True
    lease = Lease(link, granted)
    yield
    if is_total:
        yield from _copy(lease)
    yield from _windows(lease, halted, is_total=is_total)
    _acknowledge(lease)
    yield
    ticket = Ticket(record.session_id, granted.epoch, lease.next_seq - 1)
    if is_total:
        consumer = link.consumer
        completion = session.Completion(consumer.new_incarnation(), consumer.adopt)
        link.call(lambda: session.release(consumer.conn, ticket, now_s=consumer.clock_s, complete=completion))
        record.is_complete = True
    else:
        link.call(lambda: session.release(link.consumer.conn, ticket, now_s=link.consumer.clock_s))
    raise Ended("HALTED" if halted else "UP_TO_DATE")


def _give_back(link: Link) -> None:
    """Release what may be held still, if the consumer answers."""
    record, consumer = link.record, link.consumer
    assert record is not None
    ticket = Ticket(record.session_id, record.epoch)
    with suppress(Unanswered, SessionRefused):
        link.call(lambda: session.release(consumer.conn, ticket, now_s=consumer.clock_s))


class Lease:
    """One epoch: what the consumer said last."""

    def __init__(self, link: Link, granted: session.Acquired) -> None:
        self.link = link
        self.granted = granted
        self.ruv = dict(granted.ruv or {})
        self.has_ruv = granted.ruv is not None
        self.generation = granted.generation
        self.next_seq = 1

    @property
    def consumer(self) -> Consumer:
        return Consumer(dict(self.ruv) if self.has_ruv else None, self.generation)


def _look(link: Link) -> Snapshot:
    """A snapshot of the supplier, noted before it is shown."""
    site = link.supplier
    seen = site.state()
    if seen.replica.status is not ReplicaStatus.ONLINE:
        raise Ended(f"SUPPLIER_{seen.replica.status}")
    site.note_own(seen.vectors.ruv.get(site.rid))
    return seen


def _acquire(link: Link, seen: Snapshot, *, is_total: bool) -> session.Acquired:
    record, supplier, consumer = link.record, link.supplier, link.consumer
    assert record is not None
    ruv = dict(seen.vectors.ruv)
    if is_total:
        kept = record.total_ruv if record.is_begun else None
        if kept is None or (not link.rules.total_from_state_behind and _is_behind(seen, kept)):
            record.total_ruv, record.generation, record.is_begun = ruv, seen.replica.generation, False
        ruv = dict(record.total_ruv or {})
    try:
        csn_now, _ = csn_generator.next_csn(seen.generator, now_s=supplier.clock_s)
    except csn_generator.ClockSkewExceeded as error:
        raise Ended("CLOCK_SKEW", error.detail) from error
    consumer.compare()
    before = consumer.held() if is_total and record.discard else None
    granted = session.acquire(
        consumer.conn,
        session.Acquire(
            session_id=record.session_id,
            mode=SessionMode.TOTAL if is_total else SessionMode.INCREMENTAL,
            supplier_store=supplier.name,
            supplier_rid=supplier.rid,
            generation=seen.replica.generation,
            ruv=ruv,
            csn_now=csn_now,
            lease_s=600.0,
            discard_consumer_changes=record.discard,
            history=shown_history(
                supplier.conn,
                ruv,
                supplier.rid,
                covers=consumer.state().vectors.ruv if is_total else None,
            ),
        ),
        now_s=consumer.clock_s,
        ahead_max_s=AHEAD_MAX_S,
        consent=lambda: True,
    )
    if is_total:
        consumer.copies += 1
        consumer.conn.execute(
            "delete from model_inserts where csn not in (select csn from replica_changelog)"
        )
    if before is not None and before.generation is not None:
        oracle = consumer.oracle
        tops = {rid: greatest for rid, (greatest, _) in before.ruv.items()}
        oracle.give_up({csn for csn in oracle.shown if ruv.get(csn.rid, "") < csn <= tops.get(csn.rid, "")})
    return granted


def _is_behind(seen: Snapshot, ruv: dict[int, Csn]) -> bool:
    return any(seen.vectors.ruv.get(rid, "") < csn for rid, csn in ruv.items())


# -- the copy


def _copy(lease: Lease) -> Steps:
    link, record = lease.link, lease.link.record
    assert record is not None
    if not lease.granted.is_copied:
        acked = dict(record.total_ruv or {})
        agreements.acknowledge(link.supplier.conn, link.agreement, acked, consumer_rid=link.consumer.rid)
        _tell(link, acked)
        yield
        yield from _pipeline(lease, _entry_pages(lease), told=lambda _: None)
    link.rules.before_complete(lease)
    lease.ruv = dict(_complete(lease, dict(record.total_ruv or {})))
    lease.has_ruv, lease.generation = True, record.generation
    link.consumer.copied = dict(lease.ruv)
    yield


def _complete(lease: Lease, ruv: dict[int, Csn]) -> Any:
    link, record = lease.link, lease.link.record
    assert record is not None

    def ask(shown: dict[int, Csn]) -> Any:
        return session.complete_total(
            link.consumer.conn,
            Ticket(record.session_id, lease.granted.epoch, lease.next_seq - 1),
            ruv=shown,
            generation=str(record.generation),
            now_s=link.consumer.clock_s,
            buried=record.buried,
        )

    seen = link.supplier.state()
    record.met(seen.replica.buried)
    try:
        _require_above(lease, seen, ruv)
        return link.call(lambda: ask(ruv))
    except TotalRuvDiffers as error:
        if error.facts["generation"] != record.generation:
            raise
        begun = {int(rid): Csn(csn) for rid, csn in error.facts["ruv"].items()}
        if any(csn > (record.total_ruv or {}).get(rid, "") for rid, csn in begun.items()):
            raise
        _require_above(lease, seen, begun)
        record.total_ruv = begun
        return link.call(lambda: ask(begun))


def _require_above(lease: Lease, seen: Snapshot, begun: Mapping[int, Csn]) -> None:
    """A copy whose bound would refuse what follows it is begun anew."""
    record = lease.link.record
    assert record is not None
    if not lease.granted.is_copied and is_below_bound(begun, seen, record.buried):
        raise Ended("COPY_OUTDATED", "tombstones were purged that it needs")


def _entry_pages(lease: Lease) -> Iterator[pa.RecordBatch]:
    link, record = lease.link, lease.link.record
    assert record is not None
    after = lease.granted.resume_after
    while True:
        conn = link.supplier.conn
        with conn.transaction(read_only=True):
            seen = replica.snapshot(conn)
            page = read_entries(conn, after=after, rows_max=link.random.randint(1, 3))
        if not link.rules.total_from_state_behind and _is_behind(seen, record.total_ruv or {}):
            raise Ended("SUPPLIER_BEHIND", "it was put back while it was copied")
        record.met(seen.replica.buried)
        if not len(page):
            return
        yield page
        after = (page.column("database")[-1].as_py(), page.column("key")[-1].as_py())


# -- windows


def _windows(lease: Lease, halted: set[int], *, is_total: bool) -> Steps:
    link, record = lease.link, lease.link.record
    assert record is not None
    for number in range(WINDOWS_MAX):
        seen = _look(link)
        if number == 0:
            _compare_histories(lease, seen)
            _compare_own(lease, seen)
        yield
        vectors = seen.vectors
        known = Supplier(vectors.ruv, vectors.min, vectors.purged, seen.replica.generation)
        decision = link.rules.decide(link, known, lease.consumer)
        if decision.outcome is Outcome.UP_TO_DATE:
            return
        if decision.outcome is Outcome.NEEDS_TOTAL:
            raise Ended("NEEDS_TOTAL", (decision.reason, decision.blocked_rids))
        wanted = {rid: each for rid, each in decision.windows.items() if rid not in halted}
        if not wanted:
            return
        sent = link.sent
        try:
            yield from _pipeline(lease, _source(lease, wanted, halted), told=_teller(lease, halted))
        except ChangelogIncomplete as error:
            if link.is_plain:
                raise Violation("LOG_INCOMPLETE", error.detail) from error
            raise Ended("NEEDS_TOTAL", error.detail) from error
        _acknowledge(lease)
        if link.sent == sent:
            raise Ended("NEEDS_TOTAL", "nothing is acknowledged")
        if not is_total and link.random.random() < link.loss:
            raise Ended("YIELDED")
    raise Ended("YIELDED")


def _compare_histories(lease: Lease, seen: Snapshot) -> None:
    """A consumer with another history ends the session."""
    shown = lease.granted.history
    is_same = lease.generation == seen.replica.generation
    try:
        judge_consumer(
            lease.link.supplier.conn, seen, lease.link.consumer.rid, shown, lease.ruv if is_same else {}
        )
    except SessionRefused as error:
        raise Ended(error.code, error.detail) from error


def _compare_own(lease: Lease, seen: Snapshot) -> None:
    """A consumer that has more of our own changes than we knows of a loss here."""
    site = lease.link.supplier
    if lease.generation != seen.replica.generation or not lease.ruv:
        return
    theirs, own = lease.ruv.get(site.rid), seen.vectors.ruv.get(site.rid)
    if theirs is not None and theirs > (own or ""):
        replica.mark_restored(site.conn, upto=theirs)
        raise Ended("SUPPLIER_RESTORED")
    try:
        with site.conn.transaction():
            tables = tables_of(site.conn)
            replica.adjust_generator(site.conn, tables, remote=max(lease.ruv.values()), now_s=site.clock_s)
    except csn_generator.ClockSkewExceeded as error:
        raise Ended("CLOCK_SKEW", error.detail) from error


def _source(lease: Lease, wanted: dict[int, Window], halted: set[int]) -> Iterator[pa.RecordBatch]:
    record, link = lease.link.record, lease.link
    assert record is not None
    rows_max = link.random.randint(1, 4)
    conn = link.supplier.conn
    if record.strategy is Strategy.WINDOW:
        yield from window.WindowReader(conn, wanted, rows_max=rows_max, bytes_max=100_000)
        return
    reader = classic.ClassicReader(conn, rows_max=rows_max, bytes_max=100_000)
    while True:
        seen = _look(link)
        vectors = seen.vectors
        ruv = {rid: csn for rid, csn in vectors.ruv.items() if rid not in halted}
        known = Supplier(ruv, vectors.min, vectors.purged, seen.replica.generation)
        yield pa.RecordBatch.from_pylist([], schema=record_schema())  # others may act after the snapshot
        load = reader.next_load(known, lease.consumer)
        if load.decision.outcome is not Outcome.SEND:
            return
        keep = [Csn(each).rid not in halted for each in load.batch.column("csn").to_pylist()]
        yield load.batch.filter(pa.array(keep, pa.bool_()))


def _teller(lease: Lease, halted: set[int]) -> Callable[[Flight], None]:
    link = lease.link

    def told(flight: Flight) -> None:
        answer = flight.answer
        assert answer is not None
        lease.ruv = dict(answer.ruv)
        link.sent += answer.applied + answer.covered
        _tell(link, lease.ruv)
        if answer.rejected:
            rows = {row["csn"]: row for row in flight.batch.to_pylist()}
            letters = [
                dead_letters.Refused(
                    each.csn,
                    **{name: rows[each.csn][name] for name in ("kind", "database", "key", "payload")},
                    code=each.code,
                    detail=each.detail,
                )
                for each in answer.rejected
                if each.csn in rows
            ]
            conn, now_s = link.supplier.conn, link.supplier.clock_s
            dead_letters.put_dead_letters(
                conn, dead_letters.Direction.SENT, link.agreement, letters, now_s=now_s
            )
            halted.update(each.csn.rid for each in answer.rejected)
            raise Halted

    return told


def _acknowledge(lease: Lease) -> None:
    link = lease.link
    if lease.ruv:
        _tell(link, lease.ruv)
        agreements.acknowledge(link.supplier.conn, link.agreement, lease.ruv, consumer_rid=link.consumer.rid)


def _tell(link: Link, ruv: dict[int, Csn]) -> None:
    for rid, csn in ruv.items():
        link.told[rid] = max(csn, link.told.get(rid, Csn("0" * 20)))


# -- batches


def _pipeline(lease: Lease, source: Iterator[pa.RecordBatch], *, told: Callable[[Flight], None]) -> Steps:
    """Send what the source gives, at most four at once; answers count in the order of their numbers."""
    link, record = lease.link, lease.link.record
    assert record is not None
    is_read, seq = False, lease.next_seq
    while not is_read or link.flights:
        if not is_read and len(link.flights) < IN_FLIGHT:
            batch = next(source, None)
            is_read = batch is None
            if batch is not None and len(batch):
                ticket = Ticket(record.session_id, lease.granted.epoch, seq)
                is_records = "prev" in batch.schema.names
                proof = proof_of(link.supplier.conn, batch) if is_records else None
                link.flights.append(Flight(ticket, batch, proof))
                seq += 1
        while link.flights and link.flights[0].answer is not None:
            flight = link.flights.pop(0)
            lease.next_seq += 1
            told(flight)
        for flight in link.flights:
            if flight.trouble is not None:
                raise flight.trouble
        yield


__all__ = ["Ended", "Flight", "InjectedFault", "Link", "Record", "Rules", "attempt"]
