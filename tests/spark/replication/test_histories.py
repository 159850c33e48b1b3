"""Attacks on histories: machines put back, replica ids used twice, forged changes; nothing is lost or green.

Source: issue 15, B1 to B3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spark.formats.csn import Csn
from spark.formats.replica import tables_of
from spark.replication.consumer.apply import apply_batch
from spark.replication.proofs import judging as proofs
from spark.replication.proofs.chain import chain_of
from spark.replication.proofs.history_points import find_points, heads_of
from spark.replication.proofs.identity import sign_head
from spark.replication.proofs.shown_proofs import proof_of, shown_history
from spark.replication.proofs.values import BatchProof, Head, History, RidProof
from spark.replication.records import ReplicaStatus, SessionMode, record_schema
from spark.replication.session_errors import ChangesUnproven, HistoryDiverged, HistoryUnproven
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Acquire, acquire
from tests.spark.replication.broken_rule import broken_rule
from tests.spark.replication.history_sites import GENERATION, Machine, session

Make = Callable[..., Machine]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make machines."""
    made: list[Machine] = []

    def _make(rid: int, name: str | None = None) -> Machine:
        made.append(Machine(rid, tmp_path / f"{name or rid}.db"))
        return made[-1]

    yield _make
    for each in made:
        each.close()


def _level(*machines: Machine) -> None:
    """Everybody brings everybody level."""
    for _ in range(2):
        for supplier in machines:
            for consumer in machines:
                if supplier is not consumer:
                    assert session(supplier, consumer) == "UP_TO_DATE"


def _put_back_and_written(make: Make) -> tuple[Machine, Machine, list[str]]:
    """A, whole machine put back and written to once; B, which holds three changes that A had acknowledged."""
    a, b = make(1), make(2)
    a.write(b"first")
    _level(a, b)
    kept = a.back_up()
    lost = a.write(b"x") + a.write(b"y") + a.write(b"z")
    assert session(a, b) == "UP_TO_DATE"
    a.put_back(kept)
    b.write(b"of b")
    a.clock_s = b.clock_s + 60
    assert a.write(b"new")
    return a, b, lost


@pytest.mark.parametrize("mode", SessionMode)
@pytest.mark.parametrize("from_restored", [True, False])
def test_a_machine_put_back_and_written_to_is_never_green_and_nothing_goes(
    make: Make, mode: SessionMode, from_restored: bool
) -> None:
    # B -> A said UP_TO_DATE though A lacked three changes; A -> B said so too; and a TOTAL removed them all.
    a, b, lost = _put_back_and_written(make)
    before = a.log(), b.log(), a.entries(), b.entries()
    supplier, consumer = (a, b) if from_restored else (b, a)
    assert session(supplier, consumer, mode=mode) in ("DIVERGED", "CONSUMER_AHEAD")
    assert (a.log(), b.log(), a.entries(), b.entries()) == before
    assert set(lost) <= b.log()


def test_a_comparison_without_a_session_finds_it_from_either_side(make: Make) -> None:
    a, b, _ = _put_back_and_written(make)
    for ours, theirs in ((a, b), (b, a)):
        mine, other = ours.state().vectors.ruv, theirs.state().vectors.ruv
        asked = {rid: csn for rid, csn in mine.items() if other.get(rid, "") > csn}
        points = find_points(theirs.conn, asked)
        shown = shown_history(theirs.conn, other, theirs.rid)
        with ours.conn.transaction(read_only=True):
            found = proofs.judge_remote(ours.conn, asked, points, theirs.rid, shown, other)
        assert (found.is_duplicate, found.diverged) == (False, (1,))


def test_an_admin_may_discard_what_has_parted(make: Make) -> None:
    a, b, lost = _put_back_and_written(make)
    assert session(b, a, mode=SessionMode.TOTAL, discard=True) == "UP_TO_DATE"
    assert set(a.entries()) == set(b.entries())
    assert {csn for csn, _ in a.entries().values()} >= set(lost)
    _level(a, b)


def test_a_machine_put_back_that_has_not_written_gets_its_changes_back(make: Make) -> None:
    a, b = make(1), make(2)
    a.write(b"first")
    _level(a, b)
    kept = a.back_up()
    lost = a.write(b"x") + a.write(b"y")
    assert session(a, b) == "UP_TO_DATE"
    a.put_back(kept)
    assert session(b, a) == "UP_TO_DATE"
    assert a.state().replica.status is ReplicaStatus.ONLINE
    assert set(lost) <= a.log()
    assert a.write(b"more")
    _level(a, b)


def test_the_comparison_is_what_finds_it(make: Make) -> None:
    a, b, lost = _put_back_and_written(make)
    with (
        broken_rule(proofs, "require_one_history", lambda found: None),
        broken_rule(proofs, "_check_last", lambda *told: None),
    ):
        # Without it: green, over two histories.
        from spark.replication.sessions import session as product

        with broken_rule(product, "require_one_history", lambda found: None):
            assert session(b, a) in ("UP_TO_DATE", "UNPROVEN")
    assert not set(lost) <= a.log()


@pytest.mark.parametrize("mode", SessionMode)
def test_a_replica_id_used_twice_is_named_at_both_ends_and_destroys_nothing(
    make: Make, mode: SessionMode
) -> None:
    # In a star the hub emptied the second leaf of that number by a TOTAL.
    hub, leaf, twin = make(1), make(5), make(5, "twin")
    hub.write(b"hub")
    leaf.write(b"leaf")
    _level(hub, leaf)
    [own] = twin.write(b"twin")
    assert session(twin, hub) == "DUPLICATE_RID"
    assert session(hub, twin, mode=mode) == "DUPLICATE_RID"
    assert session(hub, twin, mode=mode, discard=True) == "DUPLICATE_RID"
    assert own in twin.log()
    assert twin.state().replica.status is ReplicaStatus.ONLINE
    assert twin.write(b"more")
    _level(hub, leaf)


def _offer(supplier: Machine, consumer: Machine, **changed: object) -> int:
    """An acquire as an attacker makes it; the epoch."""
    seen = supplier.state()
    consumer.clock_s = supplier.clock_s = max(supplier.clock_s, consumer.clock_s)
    fields: dict[str, object] = {
        "ruv": seen.vectors.ruv,
        "history": shown_history(supplier.conn, seen.vectors.ruv, supplier.rid),
    } | changed
    request = Acquire(
        "rps_attack",
        SessionMode.INCREMENTAL,
        "attacker",
        supplier.rid,
        GENERATION,
        csn_now=Csn.of(supplier.clock_s, 0, supplier.rid),
        lease_s=600.0,
        **fields,  # type: ignore[arg-type]
    )
    return acquire(consumer.conn, request, now_s=consumer.clock_s).epoch


@pytest.mark.parametrize("signed_by", [None, 9])
def test_a_claim_about_our_own_changes_that_we_have_not_signed_is_not_believed(
    make: Make, signed_by: int | None
) -> None:
    # It made the replica RESTORED and read-only.
    a, nine = make(1), make(9)
    a.write(b"a")
    _level(a, nine)
    claimed = Csn.of(a.clock_s + 100, 0, 1)
    shown = shown_history(nine.conn, nine.state().vectors.ruv, 9)
    chain = bytes(32)
    signature = None
    if signed_by:
        signature = sign_head(nine.conn, tables_of(nine.conn), 1, claimed, chain)
    heads = {**shown.heads, 1: Head(claimed, chain, signature)}
    ruv = nine.state().vectors.ruv | {1: claimed}
    with pytest.raises(HistoryUnproven):
        _offer(nine, a, ruv=ruv, history=replace(shown, heads=heads))
    assert a.state().replica.status is ReplicaStatus.ONLINE
    assert a.write(b"on")
    _level(a, nine)


def _forged(of_rid: int, at: int, prev: Csn | None) -> pa.RecordBatch:
    row = (Csn.of(at, 0, of_rid), prev, "CHANGE", b"db", b"key", b"forged")
    return pa.RecordBatch.from_pylist(
        [dict(zip(record_schema().names, row, strict=True))], schema=record_schema()
    )


@pytest.mark.parametrize("with_proof", [True, False])
def test_forged_changes_of_another_replica_are_refused_and_nothing_waits(
    make: Make, with_proof: bool
) -> None:
    # A peer of RID 9 forged changes of RID 1, and the pair ended in a deadlock.
    a, b, nine = make(1), make(2), make(9)
    a.write(b"a")
    _level(a, b, nine)
    [(last,)] = b.conn.execute("select max_csn from replica_ruv where rid = 1")
    epoch = _offer(nine, b)
    forged = _forged(1, b.clock_s, Csn(last))
    proof: BatchProof | None = None
    if with_proof:
        _, ends = chain_of(forged, {1: heads_of(b.conn, tables_of(b.conn))[1]})
        csn = Csn(forged.column("csn")[0].as_py())
        assert ends[1] is not None
        signature = sign_head(nine.conn, tables_of(nine.conn), 1, csn, ends[1])
        proof = BatchProof({1: RidProof(None, ends[1], Head(csn, ends[1], signature))})
    before = b.log()
    with pytest.raises(ChangesUnproven):
        apply_batch(b.conn, Ticket("rps_attack", epoch, 1), forged, now_s=b.clock_s, proof=proof)
    assert b.log() == before
    b.conn.execute("update replica_session set expires_at_s = 1")
    a.write(b"true")
    _level(a, b, nine)


def test_changes_of_others_go_on_through_a_replica_in_the_middle(make: Make) -> None:
    # Batches of another size than those in which they were signed.
    a, b, c = make(1), make(2), make(3)
    for number in range(4):
        a.write(*(b"%d/%d" % (number, each) for each in range(5)))
        assert session(a, b, rows_max=4) == "UP_TO_DATE"
    a_known = shown_history(a.conn, {}, 1)
    assert a_known.key
    assert session(a, c, rows_max=100) == "UP_TO_DATE"
    for number in range(4):
        a.write(*(b"%d/%d" % (number, each) for each in range(7)))
    assert session(a, b, rows_max=5) == "UP_TO_DATE"
    assert session(b, c, rows_max=2, batches_max=3) == "YIELDED"
    assert session(b, c, rows_max=3) == "UP_TO_DATE"
    assert c.entries() == a.entries()


def test_a_changed_record_does_not_follow(make: Make) -> None:
    a, b = make(1), make(2)
    a.write(b"a")
    _level(a, b)
    a.write(b"b")
    a.conn.execute("update replica_changelog set payload = 'other' where key = :key", {"key": b"b"})
    assert session(a, b) == "DIVERGED"
    assert b"b" not in b.entries()


def test_what_was_trimmed_can_still_be_compared_where_it_was_acknowledged(make: Make) -> None:
    a, b = make(1), make(2)
    a.write(b"a", b"b")
    _level(a, b)
    assert a.trim(str(a.state().vectors.ruv[1]), 1) == 2
    assert session(a, b) == session(b, a) == "UP_TO_DATE"
    a.write(b"c")
    assert session(a, b) == "UP_TO_DATE"
    assert session(b, a) == "UP_TO_DATE"


def test_a_point_that_was_trimmed_is_not_green(make: Make) -> None:
    a, b, c = make(1), make(2), make(3)
    [first] = a.write(b"a")
    a.write(b"b")
    _level(a, c)
    assert session(a, b, batches_max=1, rows_max=1) == "YIELDED"
    assert b.state().vectors.ruv[1] == first
    assert c.trim(str(c.state().vectors.ruv[1]), 1) == 2
    assert session(b, c) == "UNPROVEN"
    assert session(a, b) == "UP_TO_DATE"
    assert session(b, c) == "UP_TO_DATE"


def test_a_replica_of_the_version_before_is_upgraded_where_it_lies(make: Make, tmp_path: Path) -> None:
    a, b = make(1), make(2)
    for number in range(5):
        a.write(b"%d" % number)
    b.write(b"b")
    _level(a, b)
    heads = shown_history(a.conn, a.state().vectors.ruv, 1).heads
    for each in (a, b):
        _as_before(each)
        each.open()
    again = shown_history(a.conn, a.state().vectors.ruv, 1).heads
    assert {rid: head.chain for rid, head in again.items()} == {
        rid: head.chain for rid, head in heads.items()
    }
    _level(a, b)
    a.write(b"on")
    _level(a, b)
    assert a.entries() == b.entries()


def _as_before(machine: Machine) -> None:
    """The layout of the version before."""
    for table in ("identity", "points", "known_keys", "signed_heads"):
        machine.conn.execute(f"drop table replica_{table}")
    machine.conn.execute("alter table replica_changelog drop column chain")
    machine.conn.execute("update replica_replica set layout_version = 1")
    machine.close()


def test_an_upgraded_copy_begins_where_its_supplier_is(make: Make) -> None:
    # A copy has no changelog from the beginning: its chain cannot be computed.
    a, b = make(1), make(2)
    for number in range(5):
        a.write(b"%d" % number)
    assert session(a, b, mode=SessionMode.TOTAL) == "UP_TO_DATE"
    a.write(b"behind")
    assert session(a, b) == "UP_TO_DATE"
    for each in (a, b):
        _as_before(each)
        each.open()
    assert shown_history(b.conn, b.state().vectors.ruv, 2).heads[1].chain is None
    assert session(a, b) == session(b, a) == "UP_TO_DATE"
    a.write(b"on")
    assert session(a, b) == "UP_TO_DATE"
    assert (
        shown_history(b.conn, b.state().vectors.ruv, 2).heads[1].chain
        == shown_history(a.conn, a.state().vectors.ruv, 1).heads[1].chain
        is not None
    )
    kept = a.back_up()
    a.write(b"lost")
    assert session(a, b) == "UP_TO_DATE"
    a.put_back(kept)
    a.clock_s = b.clock_s + 60
    a.write(b"other")
    assert session(b, a) == session(a, b) == "DIVERGED"


def test_histories_are_read_back_as_they_were_shown(make: Make) -> None:
    a, b = make(1), make(2)
    a.write(b"a")
    _level(a, b)
    shown = shown_history(b.conn, b.state().vectors.ruv, 2, covers=a.state().vectors.ruv)
    assert History.of(shown.document()) == shown
    batch = _forged(1, 5, None)
    assert BatchProof.parse(proof_of(a.conn, batch).to_json()) == proof_of(a.conn, batch)
    with pytest.raises(HistoryDiverged):
        proofs.require_covered(a.conn, a.state().vectors.ruv, replace(shown, covers={}))
