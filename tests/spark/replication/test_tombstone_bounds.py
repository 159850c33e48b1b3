"""The bound of purged tombstones: where it stands, what it refuses, how it travels; on both databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.formats.extinction import Extinction
from spark.formats.part import Part, Prefix
from spark.formats.replica import LAYOUT_OF_BOTH, LAYOUT_OF_BOUNDS, buried_table, tables_of
from spark.replication.agreements import acknowledge, register_agreement
from spark.replication.consumer.extinctions import write_extinction
from spark.replication.errors import LayoutUnknown
from spark.replication.records import SessionMode
from spark.replication.replica.buried import take_bound
from spark.replication.replica.part_row import put_part
from spark.replication.replica.replica import Expected, ensure_layout, snapshot
from spark.replication.session_errors import BoundBeyondCopy
from spark.replication.sessions.row import Ticket
from spark.replication.sessions.session import complete_total
from spark.replication.snapshots.form import Manifest, read_manifest
from spark.replication.supplier.resumable import is_below_bound
from spark.replication.tombstones.plan import TombstoneRules
from spark.replication.tombstones.units import TombstoneUnit, TombstoneWalk, run_tombstones
from spark.targets.connection import Connection, target_now
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger
from tests.spark.replication.consumer_side import (
    GENERATION,
    OWN_RID,
    SESSION,
    ConsumerSide,
    target_of,
)
from tests.spark.replication.history_sites import Machine
from tests.spark.replication.replica_tables import DIALECTS, NOW_S, csn, opened
from tests.spark.replication.test_snapshots import blank, export, put_in
from tests.spark.replication.tombstone_tables import keys_left, put_entries

RESOURCE = "public.replica_entries"
ENDLESS_S = 2**32 - 1


@pytest.fixture(params=DIALECTS)
def conn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    """A replica of its own generation that has all of its own changes up to the 70th."""
    with opened(target_of(request, request.param, tmp_path)) as connection:
        ensure_layout(connection, rid=OWN_RID, generation=GENERATION, incarnation="inc_a")
        assert ensure_ledger(connection)
        level(connection, {OWN_RID: csn(70, OWN_RID)})
        yield connection


def level(conn: Connection, ruv: Mapping[int, Csn]) -> None:
    """Let the replica have these."""
    conn.execute_many(
        f"insert into {tables_of(conn).ruv} (rid, min_csn, max_csn) values (:rid, :csn, :csn)",
        [{"rid": rid, "csn": str(found)} for rid, found in ruv.items()],
    )


def bury(conn: Connection, *, upto: int = 60, job: str = "job_a") -> int:
    """Purge all that is older; how many went."""
    raise_fence(conn, RESOURCE, token=1, owner=job)
    rules = TombstoneRules(csn(upto, 1).timestamp)
    now_s, walk, gone = int(target_now(conn).timestamp()), TombstoneWalk(rules), 0
    while span := walk.next_span(conn, now_s=now_s, rows_max=9):
        gone += run_tombstones(conn, TombstoneUnit(job, span, rules, 1, RESOURCE, NOW_S)).rows
        walk.passed(span)
    return gone


def bound(conn: Connection) -> Csn | None:
    """As every reader sees it."""
    return snapshot(conn).replica.buried


def version(conn: Connection) -> int:
    """Of its layout."""
    [(found,)] = conn.execute(f"select layout_version from {tables_of(conn).replica}")
    return int(found)


# -- where it stands


def test_a_table_that_restored_ones_have_left_over_is_made_anew(conn: Connection) -> None:
    put_entries(conn, {b"k": (csn(10, OWN_RID), True)})
    conn.execute(f"create table {buried_table(conn)} (one integer not null primary key, csn text not null)")
    conn.execute(f"insert into {buried_table(conn)} values (1, :csn)", {"csn": str(csn(65, OWN_RID))})
    assert bound(conn) is None
    assert bury(conn) == 1
    assert (bound(conn), version(conn)) == (csn(10, OWN_RID), LAYOUT_OF_BOUNDS)


def test_a_layout_whose_upgrade_has_not_ended_is_not_raised(conn: Connection) -> None:
    put_entries(conn, {b"k": (csn(10, OWN_RID), True)})
    conn.execute(f"update {tables_of(conn).replica} set layout_version = 1")
    with pytest.raises(LayoutUnknown, match="ends its upgrade"):
        bury(conn)
    assert (keys_left(conn), version(conn)) == ({b"k"}, 1)


def test_a_bound_that_is_lost_is_unknown(conn: Connection) -> None:
    put_entries(conn, {b"k": (csn(10, OWN_RID), True)})
    bury(conn)
    conn.execute(f"delete from {buried_table(conn)}")
    with pytest.raises(LayoutUnknown, match="0 rows"):
        snapshot(conn)


def test_a_copy_of_a_replica_that_purged_nothing_has_no_bound(conn: Connection) -> None:
    put_entries(conn, {b"k": (csn(10, OWN_RID), True)})
    bury(conn)
    with conn.transaction():
        take_bound(conn, bound(conn), None)
    assert (bound(conn), version(conn)) == (None, LAYOUT_OF_BOUNDS)
    with conn.transaction():
        take_bound(conn, bound(conn), csn(5, 1))
    assert bound(conn) == csn(5, 1)


@pytest.mark.parametrize("part_first", [False, True])
def test_a_part_and_a_bound_stand_side_by_side(conn: Connection, part_first: bool) -> None:
    part = Part((Prefix(b"db", b"eu-"),))
    steps = [lambda: put_part(conn, part), lambda: take_bound(conn, None, csn(5, 1))]
    for step in steps if part_first else reversed(steps):
        with conn.transaction():
            step()
    row = snapshot(conn).replica
    assert (row.part, row.buried, version(conn)) == (part, csn(5, 1), LAYOUT_OF_BOTH)


def test_a_unit_stays_as_small_as_it_was_planned(conn: Connection) -> None:
    """What an acknowledgement has freed since the look, between its keys, goes with a later one."""
    ends = {b"a": (csn(10, OWN_RID), True), b"z": (csn(10, OWN_RID), True)}
    put_entries(conn, ends | {b"m%02d" % at: (csn(40, OWN_RID), True) for at in range(20)})
    register_agreement(conn, "agr", now_s=NOW_S, consumer_rid=1)
    acknowledge(conn, "agr", {OWN_RID: csn(20, OWN_RID)}, consumer_rid=1)
    rules = TombstoneRules(csn(60, 1).timestamp)
    raise_fence(conn, RESOURCE, token=1, owner="job_a")
    span = TombstoneWalk(rules).next_span(conn, now_s=int(target_now(conn).timestamp()), rows_max=2)
    assert span is not None
    acknowledge(conn, "agr", {OWN_RID: csn(70, OWN_RID)}, consumer_rid=1)
    assert run_tombstones(conn, TombstoneUnit("job_a", span, rules, 1, RESOURCE, NOW_S)).rows == 2
    assert len(keys_left(conn)) == 20
    assert bound(conn) == csn(10, OWN_RID)


def test_a_unit_removes_no_more_than_it_was_counted_with(conn: Connection) -> None:
    """A delete comes between look and unit: the unit does nothing, and is counted anew."""
    put_entries(conn, {key: (csn(10, OWN_RID), True) for key in (b"a", b"z")})
    rules, now_s = TombstoneRules(csn(60, 1).timestamp), int(target_now(conn).timestamp())
    raise_fence(conn, RESOURCE, token=1, owner="job_a")
    walk = TombstoneWalk(rules)
    span = walk.next_span(conn, now_s=now_s, rows_max=9)
    assert span is not None
    put_entries(conn, {b"m": (csn(5, OWN_RID), True)})
    result = run_tombstones(conn, TombstoneUnit("job_a", span, rules, 1, RESOURCE, NOW_S))
    assert (result.rows, result.refused) == (0, 3)
    assert (keys_left(conn), bound(conn)) == ({b"a", b"m", b"z"}, None)
    again = walk.next_span(conn, now_s=now_s, rows_max=9)
    assert again is not None
    assert run_tombstones(conn, TombstoneUnit("job_a", again, rules, 1, RESOURCE, NOW_S)).rows == 3


# -- what it refuses


@pytest.mark.parametrize(
    ("key", "value", "is_refused"),
    [
        pytest.param(b"live", b"old", False, id="the-entry-is-newer"),
        pytest.param(b"dead", b"old", False, id="the-tombstone-is-newer"),
        pytest.param(b"none", None, False, id="a-delete-of-nothing"),
        pytest.param(b"none", b"old", True, id="a-value-for-nothing"),
        pytest.param(b"older", b"old", True, id="an-older-tombstone-says-nothing"),
    ],
)
def test_only_what_may_bring_a_key_back_is_refused(
    conn: Connection, key: bytes, value: bytes | None, is_refused: bool
) -> None:
    put_entries(conn, {b"k": (csn(10, OWN_RID), True), b"live": (csn(60, OWN_RID), False)})
    assert bury(conn, upto=20) == 1
    put_entries(conn, {b"dead": (csn(40, OWN_RID), True), b"older": (csn(3, OWN_RID), True)})
    side = ConsumerSide(conn)
    epoch = side.acquire(rid=5, ruv={5: csn(90, 5)}).epoch
    rows = [
        (csn(5, 5), None, "CHANGE", b"db", key, value),
        (csn(80, 5), csn(5, 5), "CHANGE", b"db", b"next", b"v"),
    ]
    done = side.apply(rows, epoch=epoch, seq=1)
    assert [each.code for each in done.rejected] == ["TOMBSTONE_PURGED"] * is_refused
    assert (done.applied, done.halted) == ((0, 1) if is_refused else (2, 0))
    shown = side.entries()
    assert (b"db", b"k") not in shown
    assert shown[b"db", b"live"][1] == csn(60, OWN_RID)


def test_an_old_change_of_an_extinct_key_is_ignored_as_ever(conn: Connection) -> None:
    """It brings nothing back: no entry ever shows an extinct key."""
    put_entries(conn, {b"k": (csn(30, OWN_RID), True)})
    assert bury(conn) == 1
    found = Extinction("ext_1", frozenset({b"db"}), b"x", None, None, "old ones")
    expected = Expected("inc_a", str(csn(70, OWN_RID)))
    write_extinction(conn, found, now_s=NOW_S, expected=expected)
    side = ConsumerSide(conn)
    epoch = side.acquire(rid=5, ruv={5: csn(90, 5)}).epoch
    rows = [
        (csn(5, 5), None, "CHANGE", b"db", b"x1", b"old"),
        (csn(6, 5), csn(5, 5), "CHANGE", b"db", b"new", b"old"),
    ]
    done = side.apply(rows, epoch=epoch, seq=1)
    assert [(each.csn, each.code) for each in done.rejected] == [(csn(6, 5), "TOMBSTONE_PURGED")]
    assert (done.applied, done.extinct) == (1, {5: 1})


def test_many_old_changes_are_looked_up_by_their_keys(conn: Connection) -> None:
    put_entries(conn, {b"k": (csn(30, OWN_RID), True)})
    assert bury(conn) == 1
    put_entries(conn, {b"n%03d" % at: (csn(60, OWN_RID), False) for at in range(250)})
    side = ConsumerSide(conn)
    epoch = side.acquire(rid=5, ruv={5: csn(90, 5)}).epoch
    csns = [Csn.of(csn(5, 5).timestamp, at, 5) for at in range(251)]
    rows = [
        (found, csns[at - 1] if at else None, "CHANGE", b"db", b"n%03d" % at, b"old")
        for at, found in enumerate(csns)
    ]
    done = side.apply(rows, epoch=epoch, seq=1)
    assert (done.applied, [each.csn for each in done.rejected]) == (250, [csns[250]])


# -- how it travels


@pytest.mark.parametrize("buried", [Csn("f" * 16 + "0001"), csn(11, 1)])
def test_a_bound_beyond_its_copy_is_refused(conn: Connection, buried: Csn) -> None:
    side = ConsumerSide(conn)
    epoch = side.acquire(mode=SessionMode.TOTAL, ruv={1: csn(10, 1)}, discard=True).epoch
    side.copy([(b"db", b"k", b"v", csn(9, 1))], epoch=epoch, seq=1)

    def complete(bound: Csn) -> None:
        complete_total(
            conn,
            Ticket(SESSION, epoch, 1),
            ruv={1: csn(10, 1)},
            generation=GENERATION,
            now_s=NOW_S,
            buried=bound,
        )

    with side.unchanged(), pytest.raises(BoundBeyondCopy) as refused:
        complete(buried)
    assert refused.value.facts == {"buried": str(buried), "ruv_max": str(csn(10, 1))}
    complete(csn(10, 1))
    assert bound(conn) == csn(10, 1)


def test_a_copy_whose_changes_would_be_refused_is_seen(conn: Connection) -> None:
    level(conn, {1: csn(50, 1), 2: csn(5, 2)})
    seen = snapshot(conn)
    all_here = dict(seen.vectors.ruv)
    assert not is_below_bound(all_here, seen, csn(60, 1))
    assert not is_below_bound({}, seen, None)
    assert is_below_bound(all_here | {1: csn(10, 1)}, seen, csn(30, 1))  # the delete itself follows
    assert not is_below_bound(all_here | {1: csn(40, 1)}, seen, csn(30, 1))
    assert is_below_bound(all_here | {2: csn(4, 2)}, seen, csn(30, 1))


def test_a_file_carries_the_bound_to_the_replica_that_is_made_of_it(tmp_path: Path) -> None:
    one = Machine(1, tmp_path / "one.db")
    two = blank(2, tmp_path / "two.db", one.clock_s)
    try:
        one.write(b"a", b"b")
        newest = one.state().vectors.ruv[1]
        with one.conn.transaction():
            take_bound(one.conn, None, newest)
        path = export(one, tmp_path / "snapshot")
        with path.open("rb"):
            manifest: Manifest = read_manifest(path)
        assert manifest.buried == newest
        put_in(two, path)
        assert two.state().replica.buried == newest
    finally:
        one.close()
        two.close()
