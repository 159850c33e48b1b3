"""What may befall a feed: a node that was restored, a cleaner, strangers, a second feed, a target that goes.

One node without slons is enough: SYNCs are made by hand.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from app.db import Database
from app.events.feed import service
from app.events.feed.forms import LinesForm
from app.settings import Settings
from app.stores.rows import Store
from spark.events.catalog import read_catalog
from spark.events.feed.errors import NeedsTotal
from spark.formats.replica import tables_of
from spark.replication.records import local_schema
from spark.replication.replica.local_write import Expected, LocalRequest, write_group
from spark.replication.replica.replica import ensure_layout
from spark.replication.snapshots.place import ReplicaNotBlank
from spark.slony_feed import carrying
from spark.slony_feed.errors import (
    FeedDiffers,
    FeedMoved,
    FeedNotAlone,
    FeedRowTooLarge,
    FeedTableUnknown,
)
from spark.targets.connection import SessionLimits, Target, connect
from spark.targets.errors import TargetError, TargetLockTimeout
from tests.dying import Dying
from tests.postgresql_server import PostgresqlServer
from tests.replica_feed import (
    INCARNATION,
    RID,
    carrier_of,
    carry_all,
    cursor_at,
    entries_at,
    feed_once,
    hands,
    rows_of,
)
from tests.slony_cluster import SlonyCluster, lone_node, slony_server
from tests.slony_feed import content

pytestmark = pytest.mark.slony


@pytest.fixture(scope="module")
def server(need_slony_programs: None) -> Iterator[tuple[PostgresqlServer, SlonyCluster]]:
    """A server with one node that has a set."""
    with slony_server() as (found, directory):
        yield found, lone_node(found, directory)


def administer(server: PostgresqlServer, sql: str) -> None:
    """A statement that no transaction may hold."""
    with closing(psycopg.connect(server.conninfo(), autocommit=True)) as session:
        session.execute(sql.encode())


@pytest.fixture
def node(server: tuple[PostgresqlServer, SlonyCluster]) -> SlonyCluster:
    """The node, with a few rows that no other test has."""
    cluster = server[1]
    cluster.run(1, "delete from movement; delete from account")
    cluster.run(1, "insert into account select n, 'o' || n, n from generate_series(1, 20) n")
    cluster.run(1, "insert into movement select n, n, n, null from generate_series(1, 20) n")
    cluster.sync(1)
    return cluster


def work(node: SlonyCluster, number: int = 100) -> int:
    """A row of each kind of change, and a SYNC."""
    node.run(1, f"insert into account values ({number}, 'new', 1)")
    node.run(1, f"update account set balance = {number} where id = 1; delete from movement where account = 2")
    return node.sync(1)


def agrees(place: Target, node: SlonyCluster) -> None:
    assert rows_of(entries_at(place)) == content(node, 1)


def state(place: Target) -> tuple[Any, ...]:
    """All that a feed writes."""
    with connect(place, application_name="lethe-test") as conn:
        tables = tables_of(conn)
        changes = conn.execute(f"select rid, csn, key, payload, chain from {tables.changelog} order by csn")
        ruv = conn.execute(f"select rid, max_csn from {tables.ruv} order by rid")
        generator = conn.execute(f"select sequence from {tables.generator}")
    logged = [tuple(bytes(x) if isinstance(x, memoryview) else x for x in row) for row in changes]
    return cursor_at(place), entries_at(place), logged, ruv, generator


@contextmanager
def changes_nothing(place: Target) -> Iterator[None]:
    before = state(place)
    yield
    assert state(place) == before


def stranger(place: Target, *, database: bytes = b"other", key: bytes = b"k", value: bytes = b"v") -> None:
    """A local write beside the feed."""
    columns = [pa.array([each], pa.binary()) for each in (database, key, value)]
    batch = pa.RecordBatch.from_arrays(columns, schema=local_schema())
    limits = SessionLimits(lock_timeout_ms=200)
    with connect(place, application_name="stranger", limits=limits) as conn:
        ensure_layout(conn, rid=RID, generation=None, incarnation=INCARNATION)
        write_group(conn, [LocalRequest(batch)], now_s=int(time.time()), expected=Expected(INCARNATION, None))


# -- the node's life


def test_a_node_restored_between_the_copy_and_the_first_sync_needs_a_total(
    node: SlonyCluster, server: tuple[PostgresqlServer, SlonyCluster], sqlite_place: Target
) -> None:
    """The story: the copy sees a row of a life that was taken back. The new life has the position's SYNC, and
    counts on: the first unit left out what "the copy has", and both sides differed for good."""
    [(before,)] = node.run(1, "select max(ev_seqno) from sl_event where ev_origin = 1 and ev_type = 'SYNC'")
    administer(server[0], f"create database backup template {node.database(1)}")
    node.run(1, "insert into account values (77, 'lost', 1)")
    cursor = feed_once(sqlite_place, node)
    assert (cursor.seqno, cursor.units) == (before, 0)
    assert cursor.copied is not None
    assert cursor.life is not None
    administer(server[0], f"drop database {node.database(1)} with (force)")
    administer(server[0], f"alter database backup rename to {node.database(1)}")
    work(node)
    with changes_nothing(sqlite_place), pytest.raises(NeedsTotal, match="the database is another"):
        feed_once(sqlite_place, node)
    assert rows_of(entries_at(sqlite_place)) != content(node, 1), "nothing else tells it"
    feed_once(sqlite_place, node, first_copy=True, job_id="job_2")
    agrees(sqlite_place, node)


def test_a_server_that_was_started_anew_needs_a_total_until_a_sync_was_applied(
    node: SlonyCluster, server: tuple[PostgresqlServer, SlonyCluster], sqlite_place: Target
) -> None:
    feed_once(sqlite_place, node)
    server[0].stop()
    server[0].start()
    work(node)
    with changes_nothing(sqlite_place), pytest.raises(NeedsTotal, match="the server's start is another"):
        feed_once(sqlite_place, node)
    feed_once(sqlite_place, node, first_copy=True, job_id="job_2")
    work(node, 101)
    assert feed_once(sqlite_place, node).life is None
    server[0].stop()
    server[0].start()
    work(node, 102)
    feed_once(sqlite_place, node)
    agrees(sqlite_place, node)


def test_a_catalog_that_was_made_anew_needs_a_total(node: SlonyCluster, sqlite_place: Target) -> None:
    feed_once(sqlite_place, node)
    node.run(
        1,
        "create table kept as select * from sl_event; drop table sl_event cascade;"
        f'create table "{node.schema}".sl_event (like kept); insert into sl_event select * from kept;'
        "alter table sl_event add primary key (ev_origin, ev_seqno); drop table kept",
    )
    work(node)
    with changes_nothing(sqlite_place), pytest.raises(NeedsTotal, match="sl_event is another"):
        feed_once(sqlite_place, node)


@pytest.mark.parametrize("what", ["ev_timestamp = ev_timestamp + '1 s'", "ev_snapshot = '3:3:'"])
def test_another_sync_under_the_number_needs_a_total(
    node: SlonyCluster, sqlite_place: Target, what: str
) -> None:
    work(node)
    feed_once(sqlite_place, node)
    work(node, 101)
    applied = feed_once(sqlite_place, node).seqno
    assert cursor_at(sqlite_place).copied is None  # type: ignore[union-attr]
    node.run(1, f"update sl_event set {what} where ev_origin = 1 and ev_seqno = {applied}")
    work(node, 102)
    with changes_nothing(sqlite_place), pytest.raises(NeedsTotal, match="restored from a backup"):
        feed_once(sqlite_place, node)


def test_a_cleaner_that_was_faster_needs_a_total(node: SlonyCluster, sqlite_place: Target) -> None:
    feed_once(sqlite_place, node)
    work(node)
    newest = node.sync(1)
    with closing(node.connect(1, autocommit=False)) as session:
        session.execute(f"delete from sl_event where ev_origin = 1 and ev_seqno < {newest}".encode())
        session.execute("truncate sl_log_1, sl_log_2")
        session.commit()
    with changes_nothing(sqlite_place), pytest.raises(NeedsTotal, match="cleaned away"):
        feed_once(sqlite_place, node)
    feed_once(sqlite_place, node, first_copy=True, job_id="job_2")
    agrees(sqlite_place, node)


# -- strangers, other feeds


@pytest.mark.parametrize("where", ["copy", "unit"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_strangers_write_stops_the_feed_until_a_first_copy_is_named(
    request: pytest.FixtureRequest, node: SlonyCluster, where: str, kind: str
) -> None:
    place: Target = request.getfixturevalue(f"{kind}_place")
    feed_once(place, node)
    if where == "unit":
        work(node)
        feed_once(place, node)
    stranger(place, database=node.name.encode(), key=b"public.account/1", value=b"{}")
    stranger(place)
    for number in (101, 102):
        work(node, number)
        with changes_nothing(place), pytest.raises(FeedNotAlone, match="first_copy"):
            feed_once(place, node)
    with carrier_of(place, Target(node.url(1)), node.name) as (carrier, _):
        cursor = cursor_at(place)
        assert cursor is not None
        with changes_nothing(place), pytest.raises(FeedNotAlone):
            next(carrier.carry(cursor, upto=10**12, units_max=5))
    feed_once(place, node, first_copy=True, job_id="job_2")
    entries = entries_at(place)
    assert entries.pop(b"k") == b"v"
    assert rows_of(entries) == content(node, 1)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_no_stranger_comes_between_the_look_and_the_commit(
    request: pytest.FixtureRequest, node: SlonyCluster, kind: str
) -> None:
    place: Target = request.getfixturevalue(f"{kind}_place")
    feed_once(place, node)
    newest = work(node)
    refused = 0

    def check() -> None:
        nonlocal refused
        with pytest.raises(TargetLockTimeout):
            stranger(place)
        refused += 1

    with carrier_of(place, Target(node.url(1)), node.name, given=hands(check=check)) as (carrier, _):
        carry_all(carrier, upto=newest)
    assert refused
    agrees(place, node)


def test_two_feeds_at_once_apply_each_unit_once(node: SlonyCluster, sqlite_place: Target) -> None:
    feed_once(sqlite_place, node)
    newest = [work(node, number) for number in (101, 102, 103)][-1]
    source = Target(node.url(1))
    with carrier_of(sqlite_place, source, node.name) as (one, _):
        cursor = one.begin(job_id="job_1", first_copy=False)
        units = one.carry(cursor, upto=newest, units_max=10)
        next(units)
        with carrier_of(sqlite_place, source, node.name) as (other, _):
            next(other.carry(other.begin(job_id="job_2", first_copy=False), upto=newest, units_max=1))
        with changes_nothing(sqlite_place), pytest.raises(FeedMoved):
            next(units)
        carry_all(one, upto=newest)
    agrees(sqlite_place, node)
    assert (cursor_at(sqlite_place).units) == cursor.units + 3  # type: ignore[union-attr]


def test_another_feed_is_refused(
    node: SlonyCluster, server: tuple[PostgresqlServer, SlonyCluster], sqlite_place: Target, tmp_path: Any
) -> None:
    feed_once(sqlite_place, node)
    for other in ({"prefix": "x"}, {"sets": frozenset({1})}, {"tables": frozenset({"public.account"})}):
        with changes_nothing(sqlite_place), pytest.raises(FeedDiffers, match="one feed"):
            feed_once(sqlite_place, node, **other)
    bank = lone_node(server[0], tmp_path, name="Bank")
    for first_copy in (False, True):
        with changes_nothing(sqlite_place), pytest.raises(FeedDiffers):
            feed_once(sqlite_place, bank, first_copy=first_copy, job_id="job_2")
    feed_once(sqlite_place, node, prefix="x", first_copy=True, job_id="job_3")
    assert rows_of(entries_at(sqlite_place), prefix="x") == content(node, 1), "and none without it"


def test_a_replica_that_holds_something_is_filled_only_by_name(
    node: SlonyCluster, sqlite_place: Target
) -> None:
    stranger(sqlite_place)
    with changes_nothing(sqlite_place), pytest.raises(ReplicaNotBlank):
        feed_once(sqlite_place, node)
    feed_once(sqlite_place, node, first_copy=True)
    entries = entries_at(sqlite_place)
    assert entries.pop(b"k") == b"v"
    assert rows_of(entries) == content(node, 1)


# -- tables, rows, rights


def test_tables_that_come_and_go_need_a_total(node: SlonyCluster, sqlite_place: Target) -> None:
    feed_once(sqlite_place, node)
    node.slonik("set drop table (origin=1, id=2);")
    work(node)
    with changes_nothing(sqlite_place), pytest.raises(NeedsTotal, match="number 2"):
        feed_once(sqlite_place, node)
    node.run(1, "insert into movement values (900, 1, 1, 'not in the log')")
    node.slonik("set add table (set id=1, origin=1, id=2, fully qualified name='public.movement');")
    work(node, 101)
    with changes_nothing(sqlite_place), pytest.raises(NeedsTotal, match="SET_DROP_TABLE"):
        feed_once(sqlite_place, node)
    feed_once(sqlite_place, node, first_copy=True, job_id="job_2")
    agrees(sqlite_place, node)


def test_a_set_that_comes_beside_a_first_copy_is_noticed(
    node: SlonyCluster, sqlite_place: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy had the sets of before its snapshot, the cursor the tables of after: nobody missed a row."""
    real = carrying.origin_sets

    def late(*args: Any) -> frozenset[int]:
        found = real(*args)
        node.run(1, "create table late (id integer primary key); insert into late values (1)")
        node.slonik(
            "create set (id=2, origin=1, comment='late');"
            " set add table (set id=2, origin=1, id=9, fully qualified name='public.late');"
        )
        node.sync(1)
        return found

    monkeypatch.setattr(carrying, "origin_sets", late)
    try:
        with pytest.raises(NeedsTotal, match="number 9"):
            feed_once(sqlite_place, node)
        monkeypatch.undo()
        node.sync(1)
        with changes_nothing(sqlite_place), pytest.raises(NeedsTotal, match="number 9"):
            feed_once(sqlite_place, node)
        feed_once(sqlite_place, node, first_copy=True, job_id="job_2")
        assert b"public.late/1" in entries_at(sqlite_place)
    finally:
        node.slonik("drop set (id=2, origin=1);")
        node.run(1, "drop table late")


def test_some_tables_alone_are_fed(node: SlonyCluster, sqlite_place: Target) -> None:
    with pytest.raises(FeedTableUnknown, match=r"public\.accounts"):
        feed_once(sqlite_place, node, tables=frozenset({"public.accounts"}))
    only = frozenset({"public.account"})
    feed_once(sqlite_place, node, tables=only)
    node.run(1, "select nextval('ticket')")
    work(node)
    feed_once(sqlite_place, node, tables=only)
    found = rows_of(entries_at(sqlite_place))
    assert found["account"] == content(node, 1)["account"]
    assert not found["movement"]
    assert not [key for key in entries_at(sqlite_place) if key.startswith(b"!sequence")]


def test_a_row_that_no_entry_holds_stops_the_unit(node: SlonyCluster, sqlite_place: Target) -> None:
    feed_once(sqlite_place, node)
    node.run(1, "insert into account values (300, 'before', 1)")
    node.run(1, "insert into account values (301, repeat('x', 1100000), 1)")
    node.sync(1)
    said = r"^a row of public\.account does not fit"  # whoever reads errors may not read the data
    with changes_nothing(sqlite_place), pytest.raises(FeedRowTooLarge, match=said):
        feed_once(sqlite_place, node)
    node.run(1, "delete from account where id = 301")


def test_an_update_of_a_row_that_is_not_there_is_a_gap(node: SlonyCluster, sqlite_place: Target) -> None:
    feed_once(sqlite_place, node)
    with connect(sqlite_place, application_name="lethe-test") as conn:
        conn.execute(f"delete from {tables_of(conn).entries} where key = :key", {"key": b"public.account/1"})
    work(node)
    with (
        changes_nothing(sqlite_place),
        pytest.raises(NeedsTotal, match=r"^record \d+ \(UPDATE of public\.account\) changes a row"),
    ):
        feed_once(sqlite_place, node)


def test_a_truncate_removes_the_entries_of_its_table_alone(node: SlonyCluster, sqlite_place: Target) -> None:
    feed_once(sqlite_place, node)
    node.run(1, "insert into movement values (901, 1, 1, null); truncate movement")
    node.run(1, "insert into movement values (902, 1, 1, null)")
    node.sync(1)
    feed_once(sqlite_place, node)
    agrees(sqlite_place, node)
    assert list(rows_of(entries_at(sqlite_place))["movement"]) == [("902", "1")]


# -- the target goes


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("after", [False, True], ids=["unheard", "unanswered"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("copies", [True, False], ids=["copy", "unit"])
def test_a_target_that_goes_at_any_call_has_a_unit_or_nothing_of_it(
    request: pytest.FixtureRequest, node: SlonyCluster, kind: str, after: bool, copies: bool, every: int
) -> None:
    place: Target = request.getfixturevalue(f"{kind}_place")
    feed_once(place, node)
    newest = work(node)
    if not copies:
        node.run(1, "truncate movement")
        newest = node.sync(1)
    # With some calls left out each kind of target has others.
    states, at = [], 0 if every == 1 or kind == "sqlite" else 1 - every
    while True:
        at += every
        states.append(_steady(place))
        with carrier_of(place, Target(node.url(1)), node.name) as (carrier, replica):
            dying = Dying(replica._session, at, after=after)
            replica._session = dying  # type: ignore[assignment]
            try:
                carry_all(carrier, job_id="job_2", first_copy=copies, upto=newest)
            except TargetError:
                continue
        break
    assert dying.calls < at, "every call was met"
    states.append(_steady(place))
    distinct = [found for number, found in enumerate(states) if found not in states[:number]]
    units = [json.loads(found[1][b"!sync"])["seqno"] for found in distinct]
    assert len(distinct) == len(set(units)) <= (2 if copies else 3)
    agrees(place, node)


def _steady(place: Target) -> tuple[Any, ...]:
    """Without what an attempt may leave different though nothing was applied: nothing is left out."""
    cursor, entries, *_ = state(place)
    return cursor, entries


def test_a_first_copy_that_is_cut_off_lets_the_node_go(
    node: SlonyCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The story: a COPY that was not read to its end kept the session's lock: its ROLLBACK waited on."""
    node.run(1, "insert into account select n, 'o', n from generate_series(1000, 1005) n")
    node.sync(1)

    @contextmanager
    def connected(*_args: Any, **_words: Any) -> Iterator[Any]:
        with connect(Target(node.url(1)), application_name="lethe-test", read_only=True) as conn:
            yield conn, read_catalog(conn, node.name)

    monkeypatch.setattr(service, "connected_node", connected)
    pieces = service.read_first_copy(Database("sqlite://"), Settings(), Store(), frozenset({1}), LinesForm())
    for _ in range(2):
        next(pieces)
    pieces.close()
    assert not node.run(1, "select 1 from pg_stat_activity where application_name = 'lethe-test'")
