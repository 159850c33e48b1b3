"""Tables whose rows a feed could take for others: keys printed in two ways, keys that move, heirs of a table.

One node without slons is enough: SYNCs are made by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from spark.events.catalog import read_catalog
from spark.events.feed.copying import read_copy
from spark.events.feed.errors import NeedsTotal
from spark.events.feed.records import Change
from spark.targets.connection import Target, connect
from spark.targets.errors import TargetLockTimeout
from tests.replica_feed import entries_at, feed_once
from tests.slony_cluster import SlonyCluster, slony_server

pytestmark = pytest.mark.slony
TABLES = """
create table moment (at timestamptz primary key, v text);
create table hash (digest bytea primary key, v text);
create table span (length interval primary key, v text);
create domain noon as timestamptz;
create table period (at noon, during tstzrange, v text, primary key (at, during));
create table amount (n numeric primary key, v text);
create table place (id integer primary key, v text);
create table town (primary key (id)) inherits (place);
create table word (w text primary key);
create table "word-list" (w text primary key);
create table line (id integer primary key deferrable initially deferred, v text);
"""
FED = ("moment", "hash", "span", "period", "amount", "place", "line", "word", "word-list")


@pytest.fixture(scope="module")
def made(need_slony_programs: None) -> Iterator[SlonyCluster]:
    with slony_server() as (server, directory):
        cluster = SlonyCluster(server, directory, nodes=(1,))
        cluster.initialise()
        cluster.run(1, TABLES)
        script = [
            f"set add table (set id=1, origin=1, id={number}, fully qualified name='public.{name}');"
            for number, name in enumerate(FED, start=1)
        ]
        cluster.slonik("\n".join(["create set (id=1, origin=1, comment='odd');", *script]))
        cluster.sync(1)
        yield cluster


@pytest.fixture
def node(made: SlonyCluster) -> SlonyCluster:
    made.run(1, "; ".join(f'delete from "{name}"' for name in (*FED, "town")))
    made.sync(1)
    return made


def fed(place: Target) -> dict[str, dict[str, str | None]]:
    """The rows of a replica by their keys."""
    return {
        key.decode().removeprefix("public."): json.loads(value)
        for key, value in entries_at(place).items()
        if not key.startswith(b"!")
    }


@pytest.mark.parametrize(
    ("table", "key", "other"),
    [
        ("moment", "'2020-01-01 00:00+00'", "set timezone = 'Europe/Berlin'"),
        ("hash", r"'\xdead'", "set bytea_output = 'escape'"),
        ("span", "'1 day 2 hours'", "set intervalstyle = 'iso_8601'"),
        ("period", "'2020-01-01 00:00+00', '[2020-01-01 00:00+00,)'", "set timezone = 'Europe/Berlin'"),
    ],
)
def test_a_row_is_one_however_a_session_prints_its_key(
    node: SlonyCluster, sqlite_place: Target, table: str, key: str, other: str
) -> None:
    """The story: a session in another time zone deletes a row. Its key was another text, so the entry stayed,
    and the job said that all was applied."""
    node.run(1, f"insert into {table} values ({key}, 'copied')")
    node.sync(1)
    feed_once(sqlite_place, node)
    before = fed(sqlite_place)
    assert len(before) == 1
    for session in (other, "select 1"):
        node.run(1, f"{session}; update {table} set v = 'changed'")
        node.sync(1)
        feed_once(sqlite_place, node)
        assert fed(sqlite_place) == {key: {**row, "v": "changed"} for key, row in before.items()}
        node.run(1, f"{session}; delete from {table}; insert into {table} values ({key}, 'copied')")
        node.sync(1)
        feed_once(sqlite_place, node)
        assert fed(sqlite_place) == before
    node.run(1, f"{other}; delete from {table}")
    node.sync(1)
    feed_once(sqlite_place, node)
    assert fed(sqlite_place) == {}


def test_a_key_that_moves_in_a_session_of_another_zone_moves_once(
    node: SlonyCluster, sqlite_place: Target
) -> None:
    node.run(1, "insert into moment values ('2020-01-01 00:00+00', 'a')")
    node.sync(1)
    feed_once(sqlite_place, node)
    node.run(1, "set timezone = 'Europe/Berlin'; update moment set at = at + '1 hour'")
    node.sync(1)
    feed_once(sqlite_place, node)
    at = "2020-01-01 01:00:00+00"
    assert fed(sqlite_place) == {f"moment/{at}": {"at": at, "v": "a"}}


def test_a_delete_of_a_row_that_is_not_there_is_a_gap(node: SlonyCluster, sqlite_place: Target) -> None:
    """The story: 1.0 becomes 1.00, which Slony-I takes for no change. The DELETE of 1.00 found nothing, the
    entry of 1.0 stayed for good, and the job said that all was applied."""
    node.run(1, "insert into amount values (1.0, 'a')")
    node.sync(1)
    feed_once(sqlite_place, node)
    node.run(1, "update amount set n = 1.00")
    node.run(1, "delete from amount")
    node.sync(1)
    before = entries_at(sqlite_place)
    with pytest.raises(NeedsTotal, match=r"^record \d+ \(DELETE of public\.amount\) .*first copy"):
        feed_once(sqlite_place, node)
    assert entries_at(sqlite_place) == before
    feed_once(sqlite_place, node, first_copy=True, job_id="job_2")
    assert fed(sqlite_place) == {}


def test_a_row_that_comes_and_goes_within_a_unit_is_no_gap(node: SlonyCluster, sqlite_place: Target) -> None:
    feed_once(sqlite_place, node)
    node.run(1, "insert into amount values (1, 'a'), (2, 'b'); delete from amount where n = 1")
    node.run(1, "update amount set n = 3 where n = 2; delete from amount where n = 3")
    node.run(1, "insert into amount values (1, 'a'); delete from amount")
    node.sync(1)
    feed_once(sqlite_place, node)
    assert fed(sqlite_place) == {}


def test_a_key_does_not_move_onto_a_row_that_stands(node: SlonyCluster, sqlite_place: Target) -> None:
    """The story: the keys of three rows move by one, which a deferred constraint allows. Row after row took
    the next one's place: two of them were gone, and the third had the key of the last."""
    node.run(1, "insert into line values (1, 'a'), (2, 'b'), (3, 'c')")
    node.sync(1)
    feed_once(sqlite_place, node)
    node.run(1, "update line set id = id + 1")
    node.sync(1)
    before = entries_at(sqlite_place)
    with pytest.raises(NeedsTotal, match=r"\(UPDATE of public\.line\) moves a row onto another"):
        feed_once(sqlite_place, node)
    assert entries_at(sqlite_place) == before
    feed_once(sqlite_place, node, first_copy=True, job_id="job_2")
    assert {key: row["v"] for key, row in fed(sqlite_place).items()} == {
        "line/2": "a",
        "line/3": "b",
        "line/4": "c",
    }


def test_a_first_copy_has_no_rows_of_tables_that_inherit(node: SlonyCluster, sqlite_place: Target) -> None:
    """The story: a SELECT of a table gives its heirs' rows too, the log has none of them. What the copy took
    of an heir stayed as it was for good."""
    node.run(1, "insert into place values (1, 'own'); insert into town values (1, 'heir'), (2, 'heir')")
    node.sync(1)
    feed_once(sqlite_place, node)
    assert fed(sqlite_place) == {"place/1": {"id": "1", "v": "own"}}


def test_a_truncate_has_the_row_of_an_empty_key_and_no_row_of_another_table(
    node: SlonyCluster, sqlite_place: Target
) -> None:
    node.run(1, "insert into word values (''), ('a/b'), ('0'); insert into \"word-list\" values (''), ('a')")
    node.sync(1)
    feed_once(sqlite_place, node)
    assert len(fed(sqlite_place)) == 5
    node.run(1, "truncate word")
    node.sync(1)
    feed_once(sqlite_place, node)
    assert sorted(fed(sqlite_place)) == ["word-list/", "word-list/a"]


@contextmanager
def copying(node: SlonyCluster, *, before: str = "") -> Iterator[Callable[[], list[Change]]]:
    """A first copy that has its snapshot; call for its records. `before`: what happens behind that."""
    with connect(Target(node.url(1)), application_name="lethe-test", read_only=True) as conn:
        catalog = read_catalog(conn, node.name)
        with conn.transaction(read_only=True):
            if before:
                conn.execute("select 1")
                node.run(1, before)
            copy = read_copy(conn, catalog, 1, frozenset({1}))
            yield lambda: [change for block in copy.blocks for change in block]


def test_no_table_is_rewritten_or_emptied_beside_a_copy(node: SlonyCluster) -> None:
    """The story: a table is given a wider type while a copy reads others. To the copy's snapshot it is empty,
    as after a TRUNCATE: none of its rows came, and no record of the log had them."""
    node.run(1, "insert into amount values (1, 'a'), (2, 'b')")
    node.sync(1)
    with copying(node) as read:
        for rewriting in ("alter table amount alter n type numeric(20, 5)", "truncate amount"):
            with pytest.raises(psycopg.errors.LockNotAvailable):
                node.run(1, f"set lock_timeout = '100ms'; {rewriting}")
        node.run(1, "insert into amount values (3, 'c')")
        rows = [change.values for change in read() if change.table == "amount"]
        assert rows == [{"n": "1", "v": "a"}, {"n": "2", "v": "b"}]


def test_a_copy_behind_whose_snapshot_a_table_was_rewritten_is_tried_again(node: SlonyCluster) -> None:
    node.run(1, "insert into amount values (1, 'a')")
    node.sync(1)
    widened = "alter table amount alter n type numeric(20, 5)"
    with pytest.raises(TargetLockTimeout, match=r"public\.amount"), copying(node, before=widened):
        pass
    node.run(1, "alter table amount alter n type numeric")
    with copying(node) as read:
        assert [change.table for change in read() if change.kind == "COPY"] == ["amount"]
