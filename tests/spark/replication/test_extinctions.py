"""Extinctions at a replica: one record, no entry of their keys after them, whatever arrives when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.formats.extinction import Extinction
from spark.formats.extinction_filter import Filter
from spark.formats.replica import ADDED_LATER, tables_of
from spark.replication.consumer.extinctions import (
    KnownExtinction,
    ScanState,
    find_extinction,
    knows_database,
    newest_by_rid,
    read_extinctions,
    read_records,
    write_extinction,
)
from spark.replication.errors import ReplicaNotOnline, ReplicaWasRestored
from spark.replication.records import SessionMode
from spark.replication.replica.digest import digest_entries
from spark.replication.replica.local_write import Expected, KeyExtinct, RequestWritten
from spark.replication.replica.replica import ensure_layout, mark_restored
from spark.replication.replica.restored import accept_loss
from spark.replication.session_errors import ClockSkewed
from spark.replication.sessions.clock_bound import AHEAD_MAX_S
from spark.replication.sessions.peers import (
    LackingPeer,
    PeerRole,
    announced_missing,
    availability,
    forget_supplier,
    note_peer,
    role_of,
)
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import Acquire, Acquired, Completion, acquire, complete_total, release
from tests.spark.replication.consumer_side import (
    GENERATION,
    OWN_RID,
    SESSION,
    ConsumerSide,
    chain,
    change,
    consumer_side,
    records,
    target_of,
)
from tests.spark.replication.extinct_keys import (
    ID,
    SOUND,
    discard_beside_a_loss,
    extinction,
    local,
    record,
    write,
)
from tests.spark.replication.replica_tables import NOW_S, csn

ODD_OPERATOR = b'"filter":{"field":{"offset":0,"op":[],"value":"AA==","width":1}}'


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def side(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConsumerSide]:
    """A replica that is ONLINE and empty."""
    with consumer_side(target_of(request, request.param, tmp_path)) as found:
        yield found


def commit(side: ConsumerSide, found: Extinction | None = None) -> str:
    """An extinction of this replica."""
    return write_extinction(side.conn, found or extinction(), now_s=NOW_S, expected=SOUND)


def known(side: ConsumerSide, name: str = ID) -> KnownExtinction:
    """What the replica knows of an extinction."""
    found = find_extinction(side.conn, name)
    assert found is not None
    return found


# -- local


def test_an_extinction_is_one_record_and_one_row(side: ConsumerSide) -> None:
    first = write(side.conn, local([(b"c", b"1")])).own_max
    at = commit(side)
    assert [row[1:4] + row[4:7] for row in side.rows("changelog")][-1] == (
        at,
        first,
        "EXTINCTION",
        b"",
        b"",
        extinction().to_json(),
    )
    assert len(side.rows("changelog")) == 2
    assert side.ruv() == {OWN_RID: at}
    found = known(side)
    assert replace(found, logged_at_s=0) == KnownExtinction(
        extinction(), at, OWN_RID, ScanState.LOGGED, 0, 0, 0, 0, 0, None
    )


def test_an_extinction_that_is_written_again_changes_nothing(side: ConsumerSide) -> None:
    at = commit(side)
    with side.unchanged():
        assert commit(side) == at
    assert len(read_extinctions(side.conn)) == 1


def test_an_empty_replica_gets_its_generation_with_its_first_extinction(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with consumer_side(target_of(request, "sqlite", tmp_path), generation=None) as fresh:
        at = commit(fresh)
        [row] = fresh.rows("replica")
        assert row[3] is not None
        assert row[3] < at
        assert fresh.status()[0] == "ONLINE"


def test_a_replica_that_was_put_back_takes_no_extinction(side: ConsumerSide) -> None:
    with pytest.raises(ReplicaWasRestored):
        write_extinction(
            side.conn, extinction(), now_s=NOW_S, expected=Expected("inc_first", csn(5, OWN_RID))
        )
    assert read_extinctions(side.conn) == []
    with pytest.raises(ReplicaNotOnline):
        write_extinction(
            side.conn, extinction(), now_s=NOW_S, expected=Expected("inc_first", csn(5, OWN_RID))
        )


def test_a_local_write_to_an_extinct_key_is_refused_with_its_place(side: ConsumerSide) -> None:
    commit(side)
    done = write(
        side.conn,
        local([(b"a", b"1"), (b"b", b"2")]),
        local([(b"d", b"3"), (b"a", b"4")]),
        local([(b"cc", None)], key="k"),
        local([(b"cc", None)], key="k"),
    )
    refused, written, second, again = done.requests
    assert refused == KeyExtinct(ID, 1)
    assert isinstance(written, RequestWritten)
    assert written.changes == 2
    assert second == again == KeyExtinct(ID, 0)
    assert {key: value for (_, key), (value, _) in side.entries().items()} == {b"a": b"4", b"d": b"3"}
    assert len(side.rows("changelog")) == 3
    assert side.rows("requests") == []


def test_a_request_that_was_written_before_the_extinction_gets_its_answer(side: ConsumerSide) -> None:
    [first] = write(side.conn, local([(b"c", b"1")], key="k")).requests
    commit(side)
    [again] = write(side.conn, local([(b"c", b"1")], key="k")).requests
    assert isinstance(first, RequestWritten)
    assert again == replace(first, replayed=True)


def test_a_filter_makes_only_its_keys_extinct(side: ConsumerSide) -> None:
    commit(side, extinction(None, None, found=Filter.parse({"prefix": "eA=="})))
    [refused] = write(side.conn, local([(b"x1", b"1")])).requests
    [written] = write(side.conn, local([(b"y1", b"1")])).requests
    assert refused == KeyExtinct(ID, 0)
    assert isinstance(written, RequestWritten)


# -- batches


@pytest.mark.parametrize("order", ["before", "same batch, before", "same batch, after", "after"])
def test_a_change_of_an_extinct_key_is_logged_and_shows_in_no_entry(side: ConsumerSide, order: str) -> None:
    epoch = side.acquire().epoch
    late = [change(csn(1, 1), None, key=b"c"), change(csn(2, 1), csn(1, 1), key=b"z")]
    told = [record(csn(3, 3), None, extinction())]
    batches = {
        "before": [late, told],
        "same batch, before": [late + told],
        "same batch, after": [told + late],
        "after": [told, late],
    }[order]
    done = [side.apply(rows, epoch=epoch, seq=number) for number, rows in enumerate(batches, 1)]
    assert sum(each.applied for each in done) == 3
    assert side.ruv() == {1: csn(2, 1), 3: csn(3, 3)}
    assert len(side.rows("changelog")) == 3
    if order == "before":  # written before anybody knew: the scan's
        assert [each.extinct for each in done] == [{}, {}]
        assert known(side).late == 0
    else:
        assert [each.extinct for each in done if each.extinct] == [{1: 1}]
        assert known(side).late == 1
        assert side.entries() == {(b"db", b"z"): (b"value", csn(2, 1))}


def test_a_change_newer_than_the_extinction_is_ignored_too(side: ConsumerSide) -> None:
    epoch = side.acquire().epoch
    side.apply([record(csn(1, 3), None, extinction())], epoch=epoch, seq=1)
    done = side.apply(
        [change(csn(9, 1), None, key=b"b"), change(csn(10, 1), csn(9, 1), key=b"d")], epoch=epoch, seq=2
    )
    assert done.extinct == {1: 1}
    assert list(side.entries()) == [(b"db", b"d")]


def test_a_batch_that_is_answered_again_tells_the_same(side: ConsumerSide) -> None:
    epoch = side.acquire().epoch
    rows = [record(csn(1, 3), None, extinction()), change(csn(9, 1), None, key=b"b")]
    first = side.apply(rows, epoch=epoch, seq=1)
    again = side.apply(rows, epoch=epoch, seq=1)
    assert again.replayed
    assert (again.extinct, known(side).late) == (first.extinct, 1)


def test_a_third_replica_brings_late_changes_and_the_same_extinction(side: ConsumerSide) -> None:
    epoch = side.acquire().epoch
    side.apply([record(csn(1, 3), None, extinction())], epoch=epoch, seq=1)
    side.release(epoch=epoch)
    epoch = side.acquire("rps_00000000000000000000000003", rid=4).epoch
    rows = [record(csn(1, 3), None, extinction()), change(csn(7, 4), None, key=b"bb")]
    done = side.apply(rows, epoch=epoch, seq=1, session_id="rps_00000000000000000000000003")
    assert (done.covered, done.applied, done.extinct) == (1, 1, {4: 1})
    assert side.entries() == {}


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"no json",
        json.dumps({"v": 2, "id": "ext_x", "covers": "everything"}).encode(),
        extinction().to_json().replace(b'"filter":null', b'"filter":{"moon":1}'),
        extinction().to_json().replace(b'"filter":null', ODD_OPERATOR),
        extinction().to_json().replace(b"old ones", rb"old\u0000ones"),
        extinction().to_json().replace(ID.encode(), rb"ext\u0000"),
        rb'{"v":1,"odd\u0000":1}',
        rb'{"v":1,"\ud800":1}',
    ],
)
def test_an_extinction_that_cannot_be_read_is_a_dead_letter_that_halts_its_replica(
    side: ConsumerSide, payload: bytes
) -> None:
    epoch = side.acquire().epoch
    strange = (csn(2, 3), csn(1, 3), "EXTINCTION", b"", b"", payload)
    rows = [*chain(3, [1]), strange, *chain(3, [3], after=csn(2, 3)), *chain(1, [1])]
    done = side.apply(rows, epoch=epoch, seq=1)
    assert [(each.csn, each.code) for each in done.rejected] == [(csn(2, 3), "EXTINCTION_UNREADABLE")]
    assert (done.applied, done.halted) == (2, 1)
    assert side.ruv() == {1: csn(1, 1), 3: csn(1, 3)}
    assert read_extinctions(side.conn) == []


def test_an_extinction_without_a_payload_is_a_dead_letter(side: ConsumerSide) -> None:
    epoch = side.acquire().epoch
    done = side.apply([(csn(2, 3), None, "EXTINCTION", b"", b"", None)], epoch=epoch, seq=1)
    assert [each.code for each in done.rejected] == ["EXTINCTION_UNREADABLE"]


# -- total copies


def begin_total(side: ConsumerSide, announced: dict[int, str]) -> Acquired:
    """A total initialisation begins."""
    request = Acquire(
        session_id=SESSION,
        mode=SessionMode.TOTAL,
        supplier_store="supplier-1",
        supplier_rid=1,
        generation=GENERATION,
        ruv={1: csn(5, 1)},
        csn_now=csn(6, 1),
        lease_s=60.0,
        capabilities=frozenset({"CHANGE", "EXTINCTION"}),
        extinctions=announced,
    )
    return acquire(side.conn, request, now_s=NOW_S)


def test_a_total_copy_carries_extinctions_before_its_entries(side: ConsumerSide) -> None:
    epoch = begin_total(side, {1: csn(4, 1)}).epoch
    assert announced_missing(side.conn) == {1: csn(4, 1)}
    done = side.apply([record(csn(4, 1), None, extinction())], epoch=epoch, seq=1)
    assert (done.applied, done.rejected) == (1, ())
    side.copy(
        [(b"db", b"a", b"1", csn(1, 1)), (b"db", b"c", b"2", csn(2, 1)), (b"db", b"cc", None, csn(3, 1))],
        epoch=epoch,
        seq=2,
    )
    complete_total(
        side.conn, Ticket(SESSION, epoch, 2), ruv={1: csn(5, 1)}, generation=GENERATION, now_s=NOW_S
    )
    done = side.apply(
        [change(csn(6, 1), csn(5, 1), key=b"b"), change(csn(7, 1), csn(6, 1), key=b"e")], epoch=epoch, seq=3
    )
    assert done.extinct == {1: 1}
    completion = Completion("inc_second", lambda _incarnation, _own: None)
    release(side.conn, Ticket(SESSION, epoch, 3), now_s=NOW_S, complete=completion)
    assert [key for _, key in side.entries()] == [b"a", b"e"]
    assert announced_missing(side.conn) == {}
    assert known(side).state is ScanState.LOGGED
    assert side.status() == ("ONLINE", None)


def test_a_copy_with_an_unreadable_extinction_is_refused(side: ConsumerSide) -> None:
    epoch = begin_total(side, {}).epoch
    done = side.apply([(csn(4, 1), None, "EXTINCTION", b"", b"", b"{}")], epoch=epoch, seq=1)
    assert [(each.csn, each.code) for each in done.rejected] == [(csn(4, 1), "EXTINCTION_UNREADABLE")]
    assert read_extinctions(side.conn) == []


def test_a_copied_extinction_from_the_future_is_refused_as_its_entries_are(side: ConsumerSide) -> None:
    """It could never be removed, and every peer would refuse whoever announces it."""
    epoch = begin_total(side, {}).epoch
    far = Csn.of(NOW_S + AHEAD_MAX_S + 1, 0, 1)
    with side.unchanged(), pytest.raises(ClockSkewed):
        side.apply([record(far, None, extinction())], epoch=epoch, seq=1)
    assert newest_by_rid(side.conn) == {}


@pytest.mark.parametrize("origin", [OWN_RID, 3])
def test_an_extinction_whose_record_a_copy_discards_is_logged_anew(side: ConsumerSide, origin: int) -> None:
    """The entries were given up, the promise was not: the next own change would have hidden it from all."""
    if origin == OWN_RID:
        at = commit(side)
    else:
        at, epoch = csn(1, 3), side.acquire().epoch
        side.apply([record(at, None, extinction())], epoch=epoch, seq=1)
        side.release(epoch=epoch)
    ruv = {1: csn(5, 1)}
    epoch = side.acquire(mode=SessionMode.TOTAL, ruv=ruv, discard=True).epoch
    side.copy([(b"db", b"a", b"1", csn(5, 1)), (b"db", b"c", b"2", csn(4, 1))], epoch=epoch, seq=1)
    complete_total(side.conn, Ticket(SESSION, epoch, 1), ruv=ruv, generation=GENERATION, now_s=NOW_S)
    assert side.logged() == []
    adopted: list[tuple[str, str | None]] = []
    completion = Completion("inc_second", lambda *told: adopted.append(told))
    release(side.conn, Ticket(SESSION, epoch, 1), now_s=NOW_S, complete=completion)
    release(side.conn, Ticket(SESSION, epoch, 1), now_s=NOW_S)
    [(again, prev, *rest)] = [row[1:7] for row in side.rows("changelog")]
    assert (again > at, prev, rest[0], rest[3]) == (True, None, "EXTINCTION", extinction().to_json())
    assert (known(side).csn, known(side).rid) == (again, OWN_RID)
    # A crash before the commit must leave nothing in the metadata that the target then lacks.
    assert (side.ruv(), adopted) == (ruv | {OWN_RID: again}, [("inc_second", None)])
    assert [key for _, key in side.entries()] == [b"a"]
    [written] = write(side.conn, local([(b"z", b"1")]), expected=Expected("inc_second", again)).requests
    assert isinstance(written, RequestWritten)
    assert side.rows("changelog")[-1][2] == again


def test_an_extinction_without_a_record_waits_for_the_loss_of_own_changes_to_be_accepted(
    side: ConsumerSide,
) -> None:
    """Until then its own record may come back, and this replica writes nothing."""
    at, ruv = commit(side), {1: csn(5, 1)}
    mark_restored(side.conn, upto=csn(1_000_100, OWN_RID))
    epoch = side.acquire(mode=SessionMode.TOTAL, ruv=ruv, discard=True).epoch
    complete_total(side.conn, Ticket(SESSION, epoch), ruv=ruv, generation=GENERATION, now_s=NOW_S)
    completion = Completion("inc_second", lambda *_: None)
    release(side.conn, Ticket(SESSION, epoch), now_s=NOW_S, complete=completion)
    assert (side.status()[0], side.logged(), known(side).csn) == ("RESTORED", [], at)
    assert accept_loss(side.conn, incarnation="inc_third", now_s=NOW_S) is not None
    assert side.logged() == [known(side).csn]
    assert known(side).csn > csn(1_000_100, OWN_RID)


@pytest.mark.parametrize("origin", [OWN_RID, 3])
def test_an_extinction_without_a_record_is_logged_when_the_lost_own_changes_come_back(
    side: ConsumerSide, origin: int
) -> None:
    upto = csn(7, OWN_RID)
    at = discard_beside_a_loss(side, origin, upto=upto)
    epoch = side.acquire(ruv={1: csn(5, 1), OWN_RID: upto}).epoch
    done = side.apply([change(upto, None, key=b"z")], epoch=epoch, seq=1)
    again = known(side)
    assert (side.status()[0], again.rid, side.logged()) == ("ONLINE", OWN_RID, [upto, again.csn])
    assert again.csn > max(at, upto)
    assert done.ruv == side.ruv() == {1: csn(5, 1), OWN_RID: again.csn}


@pytest.mark.parametrize("origin", [OWN_RID, 3])
def test_an_extinction_without_a_record_is_logged_when_an_acquire_finds_nothing_lost(
    side: ConsumerSide, origin: int
) -> None:
    upto = csn(7, OWN_RID)
    discard_beside_a_loss(side, origin, upto=upto)
    side.conn.execute(f"update {tables_of(side.conn).replica} set restored_upto = null")
    acquired = side.acquire(ruv={1: csn(5, 1)})
    again = known(side)
    assert (side.status()[0], again.rid, side.logged()) == ("ONLINE", OWN_RID, [again.csn])
    assert acquired.ruv == side.ruv() == {1: csn(5, 1), OWN_RID: again.csn}


def test_extinctions_outlive_a_total_copy_of_a_supplier_without_them(side: ConsumerSide) -> None:
    at = commit(side)
    epoch = side.acquire(mode=SessionMode.TOTAL, ruv={OWN_RID: at}, generation=GENERATION).epoch
    side.copy([(b"db", b"c", b"2", csn(2, 1))], epoch=epoch, seq=1)
    assert known(side).csn == at
    assert side.entries() == {}


def test_a_supplier_gives_its_extinctions_as_records(side: ConsumerSide) -> None:
    assert read_records(side.conn).num_rows == 0
    at = commit(side)
    second = commit(side, extinction(b"x", None, name="ext_second"))
    assert read_records(side.conn).equals(
        records(
            [record(at, None, extinction()), record(second, None, extinction(b"x", None, name="ext_second"))]
        )
    )
    assert newest_by_rid(side.conn) == {OWN_RID: second}


# -- what peers say


def told(side: ConsumerSide, capabilities: frozenset[str], announced: dict[int, str], **more: object) -> int:
    """A supplier acquires."""
    fields = {
        "session_id": SESSION,
        "mode": SessionMode.INCREMENTAL,
        "supplier_store": "supplier-1",
        "supplier_rid": 1,
        "generation": GENERATION,
        "ruv": {},
        "csn_now": csn(6, 1),
        "lease_s": 60.0,
        "capabilities": capabilities,
        "extinctions": announced,
    } | more
    return acquire(side.conn, Acquire(**fields), now_s=NOW_S).epoch  # type: ignore[arg-type]


def test_announced_extinctions_are_missing_until_the_ruv_covers_them(side: ConsumerSide) -> None:
    epoch = told(side, frozenset({"EXTINCTION"}), {3: csn(3, 3)})
    assert announced_missing(side.conn) == {3: csn(3, 3)}
    side.apply(chain(3, [1, 2]), epoch=epoch, seq=1)
    assert announced_missing(side.conn) == {3: csn(3, 3)}
    side.apply([record(csn(3, 3), csn(2, 3), extinction())], epoch=epoch, seq=2)
    assert announced_missing(side.conn) == {}
    told(side, frozenset({"EXTINCTION"}), {3: csn(3, 3)})
    assert side.rows("announced") == []


def test_what_a_supplier_of_another_generation_announces_says_nothing(side: ConsumerSide) -> None:
    with side.unchanged(), pytest.raises(Exception, match="generation"):
        told(side, frozenset({"EXTINCTION"}), {3: csn(3, 3)}, generation=csn(8, 1))
    assert announced_missing(side.conn) == {}


def test_extinctions_are_available_when_all_peers_have_announced_them(side: ConsumerSide) -> None:
    assert availability(side.conn) == ()
    side.conn.execute(
        f"insert into {tables_of(side.conn).agreements} (id, registered_at_s) values ('agr_1', 1)"
    )
    told(side, frozenset({"CHANGE"}), {})
    assert availability(side.conn) == (
        LackingPeer(PeerRole.CONSUMER, "agr_1", None, heard=False),
        LackingPeer(PeerRole.SUPPLIER, "supplier-1/1", 1, heard=True),
    )
    told(side, frozenset({"CHANGE", "EXTINCTION"}), {})
    note_peer(side.conn, PeerRole.CONSUMER, "agr_1", rid=4, capabilities=["CHANGE"], now_s=1)
    assert availability(side.conn) == (LackingPeer(PeerRole.CONSUMER, "agr_1", 4, heard=True),)
    note_peer(side.conn, PeerRole.CONSUMER, "agr_1", rid=4, capabilities=["EXTINCTION", "CHANGE"], now_s=2)
    assert availability(side.conn) == ()
    side.conn.execute(f"update {tables_of(side.conn).agreements} set removed_at_s = 5")
    note_peer(side.conn, PeerRole.CONSUMER, "agr_1", rid=4, capabilities=[], now_s=3)
    assert availability(side.conn) == ()


def test_a_supplier_that_is_forgotten_lacks_nothing_until_it_acquires_again(side: ConsumerSide) -> None:
    for rid in (1, 2):
        epoch = told(side, frozenset(), {}, supplier_store=f"supplier-{rid}", supplier_rid=rid)
        release(side.conn, Ticket(SESSION, epoch), now_s=NOW_S)
    other = LackingPeer(PeerRole.SUPPLIER, "supplier-2/2", 2, heard=True)
    assert availability(side.conn) == (LackingPeer(PeerRole.SUPPLIER, "supplier-1/1", 1, heard=True), other)
    with side.unchanged():
        assert forget_supplier(side.conn, "supplier-1/1")
        assert not forget_supplier(side.conn, "supplier-1/1")
        assert not forget_supplier(side.conn, "supplier-1")
    assert availability(side.conn) == (other,)
    told(side, frozenset(), {})
    assert availability(side.conn) == (LackingPeer(PeerRole.SUPPLIER, "supplier-1/1", 1, heard=True), other)


def test_what_a_forgotten_supplier_has_announced_is_missing_still(side: ConsumerSide) -> None:
    told(side, frozenset({"EXTINCTION"}), {3: csn(3, 3)})
    assert forget_supplier(side.conn, "supplier-1/1")
    assert side.rows("peers") == []
    assert announced_missing(side.conn) == {3: csn(3, 3)}


def test_a_name_is_that_of_a_supplier_or_of_an_agreement_that_is_not_removed(side: ConsumerSide) -> None:
    told(side, frozenset(), {})
    agreements = tables_of(side.conn).agreements
    side.conn.execute(f"insert into {agreements} (id, registered_at_s) values ('agr_1', 1)")
    note_peer(side.conn, PeerRole.CONSUMER, "agr_1", rid=4, capabilities=[], now_s=1)
    assert not forget_supplier(side.conn, "agr_1")
    names = ("supplier-1/1", "agr_1", "supplier-2/2")
    assert [role_of(side.conn, name) for name in names] == [PeerRole.SUPPLIER, PeerRole.CONSUMER, None]
    side.conn.execute(f"update {agreements} set removed_at_s = 5")
    assert forget_supplier(side.conn, "supplier-1/1")
    assert [role_of(side.conn, name) for name in names] == [None, None, None]


# -- put back, older layouts, comparisons


def test_a_replica_that_was_put_back_gets_its_lost_extinction_again(side: ConsumerSide) -> None:
    """Between the two its entries may have come back: the row is LOGGED again, so it is scanned again."""
    write(side.conn, local([(b"c", b"1")]))
    first = side.ruv()[OWN_RID]
    mark_restored(side.conn, upto=csn(1_000_001, OWN_RID))
    epoch = side.acquire(ruv={OWN_RID: csn(1_000_001, OWN_RID)}).epoch
    side.apply([record(csn(1_000_001, OWN_RID), first, extinction())], epoch=epoch, seq=1)
    assert (known(side).rid, known(side).state) == (OWN_RID, ScanState.LOGGED)
    assert side.status() == ("ONLINE", None)
    [refused] = write(side.conn, local([(b"c", b"2")])).requests
    assert refused == KeyExtinct(ID, 0)


def test_a_layout_of_before_gets_the_tables_at_its_next_use(side: ConsumerSide) -> None:
    write(side.conn, local([(b"c", b"1")]))
    held = side.held()
    for table in ADDED_LATER:
        side.conn.execute(f"drop table {getattr(tables_of(side.conn), table)}")
    ensure_layout(side.conn, rid=OWN_RID, generation=None, incarnation="inc_other")
    assert side.held() == held
    assert read_extinctions(side.conn) == []
    commit(side)


def test_entries_that_one_scan_has_removed_and_another_not_are_no_difference(side: ConsumerSide) -> None:
    write(side.conn, local([(b"a", b"1"), (b"c", b"2"), (b"cc", None)]))
    commit(side)
    before = digest_entries(side.conn)
    side.conn.execute(f"delete from {tables_of(side.conn).entries} where key >= :low", {"low": b"c"})
    assert digest_entries(side.conn) == before
    assert before.count == 1


def test_a_database_is_known_by_entries_records_and_extinctions(side: ConsumerSide) -> None:
    assert not knows_database(side.conn, b"db")
    write(side.conn, local([(b"a", b"1")]))
    assert knows_database(side.conn, b"db")
    side.conn.execute(f"delete from {tables_of(side.conn).entries}")
    assert knows_database(side.conn, b"db")
    side.conn.execute(f"delete from {tables_of(side.conn).changelog}")
    assert not knows_database(side.conn, b"db")
    commit(side)
    assert knows_database(side.conn, b"db")
