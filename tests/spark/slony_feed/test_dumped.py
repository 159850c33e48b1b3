"""A node that was restored from a dump on a server that has counted fewer transactions than the old one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from spark.events.errors import CatalogIncomplete
from spark.events.feed.errors import NeedsTotal
from spark.targets.connection import Target
from tests.replica_feed import agrees, entries_at, feed_once
from tests.slony_cluster import SlonyCluster, lone_node, slony_server
from tests.slony_programs import postgresql_binaries

pytestmark = pytest.mark.slony
BURNED = 3_000


def burn(cluster: SlonyCluster) -> None:
    """Let the server count."""
    loop = f"for i in 1..{BURNED} loop perform pg_catalog.txid_current(); commit; end loop;"
    cluster.run(1, f"do $$ begin {loop} end $$")


def restored(old: SlonyCluster, new: SlonyCluster) -> None:
    binaries = postgresql_binaries()
    assert binaries is not None
    dump = subprocess.run([binaries / "pg_dump", old.conninfo(1)], capture_output=True, check=True)
    psql = [binaries / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", new.conninfo(1)]
    subprocess.run(psql, input=dump.stdout, stdout=subprocess.DEVNULL, check=True)


def repair(node: SlonyCluster) -> None:
    node.slonik("repair config (set id=1, event node=1);")


@contextmanager
def two_lives() -> Iterator[tuple[SlonyCluster, SlonyCluster]]:
    """A node with a set, and a blank database on a server that has counted less."""
    with slony_server() as (server, directory), slony_server() as (other, elsewhere):
        old = lone_node(server, directory)
        burn(old)
        old.sync(1)
        yield old, SlonyCluster(other, elsewhere, nodes=(1,))


def test_a_node_restored_from_a_dump_needs_a_total_however_far_it_has_counted_since(
    need_slony_programs: None, sqlite_place: Target
) -> None:
    """The story: the new server began with few transactions, and was refused as long as it had fewer than the
    position's SYNC had seen. Once it had more the feed went on, without all that was written until then."""
    with two_lives() as (old, new):
        feed_once(sqlite_place, old)
        old.run(1, "insert into account values (1, 'before', 1)")
        old.sync(1)
        feed_once(sqlite_place, old)
        restored(old, new)
        repair(new)
        new.run(1, "insert into account values (2, 'meanwhile', 1)")
        new.sync(1)
        burn(new)
        new.run(1, "insert into account values (3, 'since', 1)")
        before = entries_at(sqlite_place)
        with pytest.raises(NeedsTotal, match="restored from a dump"):
            feed_once(sqlite_place, new)
        new.sync(1)
        with pytest.raises(NeedsTotal, match="restored from a dump"):
            feed_once(sqlite_place, new)
        assert entries_at(sqlite_place) == before
        feed_once(sqlite_place, new, first_copy=True, job_id="job_2")
        new.run(1, "insert into account values (4, 'later', 1)")
        new.sync(1)
        feed_once(sqlite_place, new)
        agrees(sqlite_place, new)


def test_a_copy_of_a_node_whose_tables_have_other_oids_is_refused(
    need_slony_programs: None, sqlite_place: Target
) -> None:
    """The story: sl_table names tables by OID, and those of a dump are others. The tables were not found, and
    left out: a first copy had no row, deleted all entries that were there, and succeeded."""
    with two_lives() as (old, new):
        old.run(1, "insert into account values (1, 'before', 1)")
        old.sync(1)
        feed_once(sqlite_place, old)
        restored(old, new)
        new.sync(1)
        before = entries_at(sqlite_place)
        with pytest.raises(CatalogIncomplete, match=r"public\.account \(number 1\).*REPAIR CONFIG"):
            feed_once(sqlite_place, new, first_copy=True, job_id="job_2")
        assert entries_at(sqlite_place) == before
        repair(new)
        new.run(1, "alter table movement rename to moved")
        feed_once(sqlite_place, new, first_copy=True, job_id="job_3")
        assert b"public.account/1" in entries_at(sqlite_place)
