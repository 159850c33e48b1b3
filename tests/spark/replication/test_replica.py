"""A replica's layout, and what becomes of one that was put back from a backup."""

from __future__ import annotations

import pickle
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spark.formats.csn import Csn
from spark.formats.replica import TABLES, tables_of
from spark.replication.csn_generator import ClockSkewExceeded, next_csn
from spark.replication.errors import (
    GenerationDiffers,
    LayoutUnknown,
    ReplicaMissing,
    ReplicaNotOnline,
    ReplicationRefused,
    ReplicaWasRestored,
    RidDiffers,
)
from spark.replication.records import ReplicaRow, ReplicaStatus
from spark.replication.replica.replica import (
    Expected,
    adjust_generator,
    advance_ruv,
    check_restored,
    create_file,
    ensure_layout,
    find_replica,
    lock_replica,
    mark_restored,
    own_max_of,
    read_vectors,
    save_generator,
    save_replica,
    snapshot,
)
from spark.replication.replica.restored import GivenUp, accept_loss, level_if_reached
from spark.targets.connection import Connection, Target, connect
from spark.targets.errors import TargetDatabaseMissing, TargetError, TargetReadOnly
from tests.spark.replication.replica_tables import NOW_S, csn, opened, rolled_back

GENERATION = csn(0, 1)
EMPTY, ONLINE = ReplicaStatus.EMPTY, ReplicaStatus.ONLINE
INITIALIZING, RESTORED = ReplicaStatus.INITIALIZING, ReplicaStatus.RESTORED


@pytest.fixture
def target(place: Target) -> Target:
    return place


@pytest.fixture
def empty(target: Target) -> Iterator[Connection]:
    with opened(target) as connection:
        yield connection


@pytest.fixture
def conn(empty: Connection) -> Connection:
    """Replica 1, whose own changes go up to csn(50)."""
    ensure_layout(empty, rid=1, generation=GENERATION, incarnation="first")
    _own(empty, csn(50, 1))
    return empty


def _own(conn: Connection, last: Csn) -> None:
    with conn.transaction():
        advance_ruv(conn, tables_of(conn), 1, first=csn(1, 1), last=last, now_s=NOW_S)


def _set(conn: Connection, **values: object) -> None:
    for column, value in values.items():
        conn.execute(f"update {tables_of(conn).replica} set {column} = :value", {"value": value})


def _row(conn: Connection) -> ReplicaRow:
    row = find_replica(conn)
    assert row is not None
    return row


def _next(conn: Connection, *, now_s: int = NOW_S) -> Csn:
    return next_csn(snapshot(conn).generator, now_s=now_s)[0]


def test_a_target_without_tables_holds_no_replica(empty: Connection) -> None:
    assert find_replica(empty) is None
    for ask in (snapshot, read_vectors):
        with pytest.raises(ReplicaMissing):
            ask(empty)
    with pytest.raises(ReplicaMissing):
        check_restored(empty, Expected("first", None))
    with pytest.raises(ReplicaMissing):
        accept_loss(empty, incarnation="second", now_s=NOW_S)
    with empty.transaction():
        assert find_replica(empty) is None


def test_a_layout_is_made_once(empty: Connection) -> None:
    made = ensure_layout(empty, rid=7, generation=None, incarnation="first")
    assert made == ReplicaRow(7, None, "first", EMPTY)
    assert ensure_layout(empty, rid=7, generation=None, incarnation="second") == made
    found = snapshot(empty)
    assert found.replica == made
    assert found.vectors.ruv == found.vectors.min == found.vectors.purged == {}
    assert found.generator.rid == 7
    with empty.transaction():
        assert snapshot(empty) == found


def test_a_declared_generation_begins_an_empty_replica(empty: Connection) -> None:
    ensure_layout(empty, rid=7, generation=None, incarnation="first")
    made = ensure_layout(empty, rid=7, generation=GENERATION, incarnation="second")
    assert made == ReplicaRow(7, GENERATION, "first", ONLINE)
    assert ensure_layout(empty, rid=7, generation=None, incarnation="second") == made


def test_another_replica_is_refused(conn: Connection) -> None:
    before = _row(conn)
    with pytest.raises(RidDiffers) as rid:
        ensure_layout(conn, rid=2, generation=GENERATION, incarnation="second")
    assert (rid.value.found, rid.value.wanted) == (1, 2)
    with pytest.raises(GenerationDiffers) as generation:
        ensure_layout(conn, rid=1, generation=csn(9, 9), incarnation="second")
    assert (generation.value.found, generation.value.wanted) == (GENERATION, csn(9, 9))
    assert _row(conn) == before


def test_a_declared_generation_does_not_touch_a_foreign_replica(empty: Connection) -> None:
    ensure_layout(empty, rid=7, generation=None, incarnation="first")
    with pytest.raises(RidDiffers):
        ensure_layout(empty, rid=8, generation=GENERATION, incarnation="second")
    assert _row(empty).generation is None


@pytest.mark.parametrize("table", TABLES)
def test_a_table_that_is_not_ours_is_left_alone(empty: Connection, table: str) -> None:
    name = getattr(tables_of(empty), table)
    empty.execute(f"create table {name} (a integer)")
    for _ in range(2):
        with pytest.raises(LayoutUnknown):
            ensure_layout(empty, rid=1, generation=None, incarnation="first")
    empty.execute(f"drop table {name}")
    assert find_replica(empty) is None


@pytest.mark.parametrize("table", TABLES)
def test_half_a_layout_is_none(conn: Connection, table: str) -> None:
    conn.execute(f"drop table {getattr(tables_of(conn), table)}")
    with pytest.raises(LayoutUnknown):
        find_replica(conn)


@pytest.mark.parametrize(("column", "value"), [("layout_version", 4), ("status", "ASLEEP")])
def test_a_layout_of_another_version_is_unknown(conn: Connection, column: str, value: object) -> None:
    _set(conn, **{column: value})
    for ask in (find_replica, snapshot, lambda one: accept_loss(one, incarnation="x", now_s=NOW_S)):
        with pytest.raises(LayoutUnknown):
            ask(conn)


@pytest.mark.parametrize("table", ["replica", "generator"])
def test_a_layout_without_its_one_row_is_unknown(conn: Connection, table: str) -> None:
    conn.execute(f"delete from {getattr(tables_of(conn), table)}")
    with pytest.raises(LayoutUnknown):
        snapshot(conn)


def test_two_replicas_live_side_by_side_under_their_prefixes(target: Target) -> None:
    other = Target(target.url, target.password, target.schema, "odd'\"_%")
    with opened(target) as first, opened(other) as second:
        ensure_layout(first, rid=1, generation=None, incarnation="first")
        assert find_replica(second) is None
        ensure_layout(second, rid=2, generation=None, incarnation="second")
        assert (_row(first).rid, _row(second).rid) == (1, 2)


def test_many_who_come_at_once_make_one_layout(target: Target) -> None:
    found: list[ReplicaRow | TargetError] = []
    gate = threading.Barrier(4)

    def ensure(number: int) -> None:
        with connect(target, application_name="lethe-test") as own:
            gate.wait()
            try:
                found.append(ensure_layout(own, rid=1, generation=None, incarnation=f"by {number}"))
            except TargetError as error:
                found.append(error)

    threads = [threading.Thread(target=ensure, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert isinstance(found[0], ReplicaRow)


def test_the_ruv_grows_and_its_first_csn_stays(conn: Connection) -> None:
    _own(conn, csn(40, 1))
    with conn.transaction():
        advance_ruv(conn, tables_of(conn), 3, first=csn(4, 3), last=csn(9, 3), now_s=NOW_S + 1)
        advance_ruv(conn, tables_of(conn), 3, first=csn(10, 3), last=csn(12, 3), now_s=NOW_S + 2)
    conn.execute(f"update {tables_of(conn).ruv} set purged_csn = :csn where rid = 3", {"csn": csn(5, 3)})
    found = read_vectors(conn)
    assert found.ruv == {1: csn(50, 1), 3: csn(12, 3)}
    assert found.min == {1: csn(1, 1), 3: csn(4, 3)}
    assert found.purged == {3: csn(5, 3)}
    assert found.last_modified_s == {1: NOW_S, 3: NOW_S + 2}


def test_what_was_purged_before_anything_came_keeps_no_first_csn(conn: Connection) -> None:
    conn.execute(f"insert into {tables_of(conn).ruv} (rid, purged_csn) values (4, :csn)", {"csn": csn(3, 4)})
    assert 4 not in read_vectors(conn).ruv
    with conn.transaction():
        advance_ruv(conn, tables_of(conn), 4, first=csn(5, 4), last=csn(6, 4), now_s=NOW_S)
    found = read_vectors(conn)
    assert (found.min[4], found.ruv[4], found.purged[4]) == (csn(5, 4), csn(6, 4), csn(3, 4))


def test_a_snapshot_is_of_one_moment(target: Target, conn: Connection) -> None:
    with opened(target) as other, conn.transaction(read_only=True):
        first = snapshot(conn)
        with other.transaction():
            advance_ruv(other, tables_of(other), 3, first=csn(4, 3), last=csn(9, 3), now_s=NOW_S)
            _, state = lock_replica(other, tables_of(other))
            save_generator(other, tables_of(other), next_csn(state, now_s=NOW_S)[1])
        assert snapshot(conn) == first
    assert snapshot(conn).vectors.ruv[3] == csn(9, 3)


def test_the_generator_follows_a_peer(conn: Connection) -> None:
    remote = Csn.of(NOW_S + 600, 5, 3)
    with conn.transaction():
        adjust_generator(conn, tables_of(conn), remote=remote, now_s=NOW_S)
    assert _next(conn) > remote
    with pytest.raises(ClockSkewExceeded), conn.transaction():
        adjust_generator(conn, tables_of(conn), remote=Csn.of(NOW_S + 90_000, 0, 3), now_s=NOW_S)
    assert remote < _next(conn) < Csn.of(NOW_S + 700, 0, 1)


def test_one_who_waits_for_the_lock_sees_what_was_committed_meanwhile(
    target: Target, conn: Connection
) -> None:
    """What PostgreSQL reads in the statement that waits is older than the lock, of other tables at least."""
    seen: list[ReplicaRow] = []
    ready = threading.Event()

    def wait() -> None:
        with connect(target, application_name="lethe-test") as own:
            ready.set()
            with own.transaction():
                seen.append(lock_replica(own, tables_of(own))[0])

    waiter = threading.Thread(target=wait)
    with conn.transaction():
        row, state = lock_replica(conn, tables_of(conn))
        waiter.start()
        ready.wait()
        threading.Event().wait(0.2)
        save_generator(conn, tables_of(conn), next_csn(state, now_s=NOW_S)[1])
        _mark_in(conn, row)
    waiter.join()
    assert [each.status for each in seen] == [RESTORED]


def _mark_in(conn: Connection, row: ReplicaRow) -> None:
    assert row.status is ONLINE
    mark_restored(conn, upto=csn(60, 1))


def test_a_replica_that_has_what_is_remembered_is_sound(conn: Connection) -> None:
    before = _row(conn)
    for own_max in (None, csn(49, 1), csn(50, 1)):
        check_restored(conn, Expected("first", own_max))
    assert _row(conn) == before


@pytest.mark.parametrize(("incarnation", "own_max"), [("first", csn(51, 1)), ("other", csn(51, 1))])
def test_a_restored_replica_is_found_once_and_marked(
    conn: Connection, incarnation: str, own_max: Csn
) -> None:
    expected = Expected(incarnation, own_max)
    with pytest.raises(ReplicaWasRestored) as found:
        check_restored(conn, expected)
    assert (found.value.found_incarnation, found.value.found_own_max) == ("first", csn(50, 1))
    assert found.value.upto == own_max
    assert _row(conn) == ReplicaRow(1, GENERATION, incarnation, RESTORED, own_max)
    check_restored(conn, expected)


def test_an_older_file_of_another_incarnation_is_found_though_it_has_as_much(conn: Connection) -> None:
    expected = Expected("other", csn(50, 1))
    with pytest.raises(ReplicaWasRestored):
        check_restored(conn, expected)
    with conn.transaction():
        assert level_if_reached(conn, tables_of(conn), own_max=csn(50, 1), now_s=NOW_S) is ONLINE
    check_restored(conn, expected)
    assert _row(conn) == ReplicaRow(1, GENERATION, "other", ONLINE)


def test_a_file_that_was_made_anew_is_found(empty: Connection) -> None:
    ensure_layout(empty, rid=1, generation=None, incarnation="second")
    with pytest.raises(ReplicaWasRestored) as found:
        check_restored(empty, Expected("first", csn(50, 1)))
    assert found.value.found_own_max is None
    assert _row(empty) == ReplicaRow(1, None, "first", RESTORED, csn(50, 1))


def test_a_second_restore_is_found_again(conn: Connection) -> None:
    with pytest.raises(ReplicaWasRestored):
        check_restored(conn, Expected("first", csn(60, 1)))
    with pytest.raises(ReplicaWasRestored):
        check_restored(conn, Expected("first", csn(70, 1)))
    check_restored(conn, Expected("first", csn(65, 1)))
    assert _row(conn).restored_upto == csn(70, 1)


def test_a_replica_that_is_made_anew_is_not_called_restored(conn: Connection) -> None:
    _set(conn, status="INITIALIZING")
    before = _row(conn)
    check_restored(conn, Expected("first", csn(99, 1)))
    check_restored(conn, Expected("other", None))
    assert _row(conn) == before


def test_a_replica_that_is_back_in_an_older_copy_of_itself_is_marked_for_what_came_later(
    conn: Connection,
) -> None:
    """Its copy had ended, and gave it another incarnation, before it wrote what is missing now."""
    _set(conn, status="INITIALIZING")
    expected = Expected("other", csn(99, 1))
    with pytest.raises(ReplicaWasRestored):
        check_restored(conn, expected)
    assert _row(conn) == ReplicaRow(1, GENERATION, "other", INITIALIZING, csn(99, 1))
    check_restored(conn, expected)


def test_the_greatest_mark_counts(conn: Connection) -> None:
    mark_restored(conn, upto=csn(60, 1))
    with conn.transaction():
        mark_restored(conn, upto=csn(80, 1))
    mark_restored(conn, upto=csn(70, 1))
    assert _row(conn) == ReplicaRow(1, GENERATION, "first", RESTORED, csn(80, 1))


def test_a_mark_lets_a_total_initialisation_go_on(conn: Connection) -> None:
    _set(conn, status="INITIALIZING")
    mark_restored(conn, upto=csn(60, 1))
    assert _row(conn) == ReplicaRow(1, GENERATION, "first", INITIALIZING, csn(60, 1))
    with conn.transaction():
        assert level_if_reached(conn, tables_of(conn), own_max=csn(99, 1), now_s=NOW_S) is INITIALIZING


def test_restored_ends_where_the_own_changes_are_back(conn: Connection) -> None:
    ahead = Csn.of(NOW_S + 600, 3, 1)
    mark_restored(conn, upto=ahead)
    with conn.transaction():
        status = level_if_reached(conn, tables_of(conn), own_max=csn(99, 1), now_s=NOW_S)
        assert status is RESTORED
        assert level_if_reached(conn, tables_of(conn), own_max=None, now_s=NOW_S) is RESTORED
    assert _row(conn).restored_upto == ahead
    with conn.transaction():
        assert level_if_reached(conn, tables_of(conn), own_max=ahead, now_s=NOW_S) is ONLINE
    assert _row(conn) == ReplicaRow(1, GENERATION, "first", ONLINE)
    assert _next(conn) > ahead


def test_the_end_of_restored_is_undone_with_its_batch(conn: Connection) -> None:
    mark_restored(conn, upto=csn(60, 1))
    before = snapshot(conn)
    with rolled_back(conn):
        assert level_if_reached(conn, tables_of(conn), own_max=csn(60, 1), now_s=NOW_S) is ONLINE
    assert snapshot(conn) == before


def test_a_loss_that_is_accepted_is_named_and_never_given_again(conn: Connection) -> None:
    ahead = Csn.of(NOW_S + 600, 3, 1)
    mark_restored(conn, upto=ahead)
    assert accept_loss(conn, incarnation="second", now_s=NOW_S) == GivenUp(1, csn(50, 1), ahead)
    assert _row(conn) == ReplicaRow(1, GENERATION, "second", ONLINE)
    assert _next(conn) > ahead
    assert own_max_of(conn, tables_of(conn)) == csn(50, 1)


def test_there_is_no_loss_to_accept_where_none_was_found(conn: Connection) -> None:
    before = snapshot(conn)
    assert accept_loss(conn, incarnation="second", now_s=NOW_S) is None
    assert snapshot(conn) == before


def test_the_loss_of_an_empty_replica_leaves_it_empty(empty: Connection) -> None:
    ensure_layout(empty, rid=1, generation=None, incarnation="first")
    mark_restored(empty, upto=csn(5, 1))
    assert accept_loss(empty, incarnation="second", now_s=NOW_S) == GivenUp(1, None, csn(5, 1))
    assert _row(empty) == ReplicaRow(1, None, "second", EMPTY)


def test_a_clock_that_is_days_behind_ends_no_mark(conn: Connection) -> None:
    mark_restored(conn, upto=Csn.of(NOW_S + 200_000, 0, 1))
    before = snapshot(conn)
    with pytest.raises(ClockSkewExceeded):
        accept_loss(conn, incarnation="second", now_s=NOW_S)
    assert snapshot(conn) == before


def test_who_a_replica_is_can_be_kept(conn: Connection) -> None:
    row = ReplicaRow(1, csn(7, 7), "third", INITIALIZING, csn(8, 1))
    with conn.transaction():
        lock_replica(conn, tables_of(conn))
        save_replica(conn, tables_of(conn), row)
    assert _row(conn) == row


def test_a_file_is_made_for_its_owner_alone_in_wal_mode(tmp_path: Path) -> None:
    path = tmp_path / "odd name.db"
    target = Target(f"sqlite:///{path}")
    assert create_file(target)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with closing(sqlite3.connect(path)) as raw, raw:
        assert raw.execute("pragma journal_mode").fetchone() == ("wal",)
    raw.close()
    assert not create_file(target)
    assert {each.name for each in tmp_path.iterdir()} == {path.name}


def test_a_file_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.db"
    path.write_bytes(b"no database")
    path.chmod(0o640)
    assert not create_file(Target(f"sqlite:///{path}"))
    assert path.read_bytes() == b"no database"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "nowhere.db")
    assert not create_file(Target(f"sqlite:///{link}"))
    assert not (tmp_path / "nowhere.db").exists()


def test_a_file_needs_its_directory(tmp_path: Path) -> None:
    with pytest.raises(TargetDatabaseMissing):
        create_file(Target(f"sqlite:///{tmp_path / 'no' / 'replica.db'}"))
    (tmp_path / "file").touch()
    with pytest.raises(TargetDatabaseMissing):
        create_file(Target(f"sqlite:///{tmp_path / 'file' / 'replica.db'}"))


def test_a_directory_in_which_nothing_may_be_made_is_told() -> None:
    with pytest.raises(TargetReadOnly):
        create_file(Target("sqlite:////sys/replica.db"))  # not even by root


def test_many_who_come_at_once_make_one_file(tmp_path: Path) -> None:
    target = Target(f"sqlite:///{tmp_path / 'replica.db'}")
    made: list[bool] = []
    gate = threading.Barrier(8)

    def create() -> None:
        gate.wait()
        made.append(create_file(target))

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 7 + [True]
    assert [each.name for each in tmp_path.iterdir()] == ["replica.db"]


def test_postgresql_has_no_file(postgresql_url: str) -> None:
    assert not create_file(Target(postgresql_url))


@pytest.mark.parametrize(
    "error",
    [
        ReplicaMissing("not there"),
        RidDiffers(found=1, wanted=2),
        GenerationDiffers(found="a", wanted="b"),
        ReplicaNotOnline(RESTORED),
        ReplicaWasRestored(found_incarnation="first", found_own_max=None, upto=csn(1, 1)),
    ],
)
def test_errors_cross_processes(error: ReplicationRefused) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert vars(again) == vars(error)
    assert str(again) == error.detail
