"""Nodes of a real cluster whose slons replicate: what is read of them, SYNCs, confirmations."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Self

import pytest

from spark.events.catalog import path_digest, read_catalog
from spark.events.confirmations import ConfirmOutcome, confirm, confirmed_upto, confirmers, read_matrix
from spark.events.events import create_sync, last_seqno, read_event, select_events
from spark.events.inspect import inspect_node
from spark.events.records import Catalog, Event
from spark.events.rights import RIGHTS, MissingRight, missing_rights
from spark.formats.slony import SYNC
from spark.targets.connection import Connection
from spark.targets.errors import TargetError, TargetLockTimeout
from tests.slony_cluster import SlonyCluster
from tests.spark.events.catalogs import LoadedCatalog

pytestmark = pytest.mark.long  # the journeys see the same nodes through the service

ROLE = "lethe_poor"
MAKERS = 3
SYNCS_EACH = 25
DIFFERENCE_MAX = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class TxidSnapshot:
    """A snapshot of transactions as PostgreSQL writes it: `xmin:xmax:xip,...`."""

    xmin: int
    xmax: int
    in_progress: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one.

        Raises: ValueError.
        """
        xmin, xmax, running = text.split(":")
        found = cls(int(xmin), int(xmax), tuple(int(item) for item in running.split(",") if item))
        if not 0 < found.xmin <= found.xmax:
            raise ValueError(f"not a snapshot of transactions: {text!r}")
        return found

    def __str__(self) -> str:
        return f"{self.xmin}:{self.xmax}:{','.join(map(str, self.in_progress))}"


def node_of(slony: SlonyCluster, node: int) -> LoadedCatalog:
    return LoadedCatalog(slony.url(node), slony.name)


@contextmanager
def asked(loaded: LoadedCatalog) -> Iterator[tuple[Connection, Catalog]]:
    with loaded.connect() as conn:
        yield conn, read_catalog(conn, loaded.cluster)


@pytest.mark.parametrize("node", [1, 2, 3])
def test_real_node_is_told_in_full(slony: SlonyCluster, node: int) -> None:
    with node_of(slony, node).connect(read_only=True) as conn:
        found = inspect_node(conn, slony.name)
    catalog = found.catalog
    assert catalog is not None
    assert (catalog.local_node, catalog.active, catalog.version is not None) == (node, (1, 2, 3), True)
    assert str(catalog.version).startswith("2.2.")
    assert {(path.server, path.client): path.digest for path in catalog.paths} == {
        (server, client): path_digest(slony.conninfo(server))
        for server in (1, 2, 3)
        for client in (1, 2, 3)
        if server != client
    }
    assert {"cleanupevent", "forwardconfirm", "createevent", "logswitch_start", "logswitch_finish",
            "addpartiallogindices", "slonyversion", "seqtrack"} <= catalog.functions  # fmt: skip
    assert found.permissions_missing == ()
    assert found.can("CLEANUP_NATIVE")
    assert found.cleans_itself
    names = {slon.application for slon in found.slons}
    assert {"slon.local_listen", "slon.local_sync", "slon.local_monitor"} <= names
    assert {f"slon.remoteWorkerThread_{other}" for other in (1, 2, 3) if other != node} <= names
    assert {slon.node for slon in found.slons} <= {None, 1, 2, 3}


def test_lag_is_that_of_the_program(slony: SlonyCluster) -> None:
    """Of its own events; to a receiver that is not behind the program tells an age too."""
    slony.catch_up()
    with slony.load(), asked(node_of(slony, 1)) as (conn, catalog), conn.transaction(read_only=True):
        status = conn.execute(
            "select st_received, st_last_event, st_last_received, st_last_received_ts, st_lag_num_events,"
            " st_lag_time from sl_status order by 1"
        )
        found = [one for one in read_matrix(conn, catalog) if one.origin == 1]
    assert [one.receiver for one in found] == [2, 3]
    for one, (receiver, last, seqno, at, events, lag) in zip(found, status, strict=True):
        assert (one.receiver, one.last_seqno, one.seqno, one.timestamp, one.lag_events) == (
            receiver,
            last,
            seqno,
            at,
            events,
        )
        assert one.lag is not None
        assert one.lag == timedelta(0) if events == 0 else abs(one.lag - lag) < DIFFERENCE_MAX


def _make_syncs(loaded: LoadedCatalog, made: list[Event]) -> None:
    with asked(loaded) as (conn, catalog):
        while len(made) < SYNCS_EACH:
            try:
                made.append(create_sync(conn, catalog))
            except TargetLockTimeout:
                continue


def test_syncs_of_many_hands_under_load_are_in_the_order_of_their_snapshots(slony: SlonyCluster) -> None:
    """Three sessions and the node's slon make SYNCs at once: a later one never sees less."""
    loaded = node_of(slony, 1)
    made: list[list[Event]] = [[] for _ in range(MAKERS)]
    with slony.load():
        threads = [threading.Thread(target=_make_syncs, args=(loaded, mine)) for mine in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = sorted((event for mine in made for event in mine), key=lambda event: event.seqno)
    assert len({event.seqno for event in events}) == MAKERS * SYNCS_EACH
    with asked(loaded) as (conn, catalog):
        kept = select_events(
            conn, catalog, origins=[1], types=[SYNC], from_seqno=events[0].seqno, upto_seqno=events[-1].seqno,
            limit=1000,
        )  # fmt: skip
    assert {event.seqno: event for event in events}.items() <= {one.seqno: one for one in kept}.items()
    snapshots = [TxidSnapshot.parse(str(event.snapshot)) for event in kept]
    for earlier, later in pairwise(snapshots):
        assert earlier.xmin <= later.xmin
        assert earlier.xmax <= later.xmax
        ended = {txid for txid in later.in_progress if txid < earlier.xmax}
        assert ended <= set(earlier.in_progress)
    slony.catch_up()
    assert slony.differing() == []
    with asked(loaded) as (conn, catalog):
        assert confirmers(conn, catalog, 1, events[-1].seqno).outstanding == ()


def test_new_sync_is_confirmed_by_the_other_nodes(slony: SlonyCluster) -> None:
    with asked(node_of(slony, 2)) as (conn, catalog):
        made = create_sync(conn, catalog)
        assert (made.origin, made.type) == (2, SYNC)
        assert last_seqno(conn, catalog, 2) is not None
        for receiver in (1, 3):
            slony.await_confirmed(2, receiver, made.seqno, at=2)
        found = confirmers(conn, catalog, 2, made.seqno)
    assert ([one.receiver for one in found.confirmed_by], found.outstanding) == ([1, 3], ())
    with asked(node_of(slony, 3)) as (conn, catalog):
        there = read_event(conn, catalog, 2, made.seqno)
    assert there == made


@contextmanager
def _poor_role(slony: SlonyCluster, node: int) -> Iterator[None]:
    slony.run(node, f"create role {ROLE} login")
    try:
        yield
    finally:
        slony.run(node, f"drop owned by {ROLE}")
        slony.run(node, f"drop role {ROLE}")


def _granted(slony: SlonyCluster, verb: str, name: str, right: str) -> None:
    preposition = "to" if verb == "grant" else "from"
    if right == "EXECUTE":
        signatures = slony.run(
            1,
            "select oid::regprocedure::text from pg_proc"
            " where proname = %s and pronamespace = %s::regnamespace",
            name,
            f'"{slony.schema}"',
        )
        for (signature,) in signatures:
            slony.run(1, f"{verb} execute on function {signature} {preposition} {ROLE}")
        return
    kind = "sequence" if name in ("sl_event_seq", "sl_local_node_id", "sl_log_status") else "table"
    slony.run(1, f"{verb} {'delete' if right == 'LOCK' else right} on {kind} {name} {preposition} {ROLE}")


def test_role_makes_a_sync_with_just_the_rights_that_are_asked_for(slony: SlonyCluster) -> None:
    loaded = node_of(slony, 1).as_role(ROLE)
    public = f'on all functions in schema "{slony.schema}"'
    needed = RIGHTS["CREATE_SYNC"]
    with _poor_role(slony, 1):
        slony.run(1, f"revoke execute {public} from public")
        try:
            for name, right in dict.fromkeys(
                (*RIGHTS["READ"], *needed, ("sl_sequence", "SELECT"), ("sl_set", "SELECT"))
            ):
                _granted(slony, "grant", name, right)
            # What the program's own functions call in turn.
            slony.run(1, f"grant execute {public} to {ROLE}")
            assert _sync_by(loaded) == "TARGET_READ_ONLY"
            assert _lacking(loaded) == [MissingRight("CREATE_SYNC", "public.ticket", "SELECT")]
            slony.run(1, f"grant select on public.ticket to {ROLE}")
            assert (_lacking(loaded), _sync_by(loaded)) == ([], "made")
            for name, right in needed:
                _granted(slony, "revoke", name, right)
                assert _sync_by(loaded) in ("TARGET_READ_ONLY", "FUNCTIONS_MISSING"), (name, right)
                assert _lacking(loaded) == [MissingRight("CREATE_SYNC", name, right)]
                _granted(slony, "grant", name, right)
            assert _sync_by(loaded) == "made"
        finally:
            slony.run(1, f"grant execute {public} to public")


def _lacking(loaded: LoadedCatalog) -> list[MissingRight]:
    with loaded.connect(read_only=True) as conn:
        return [one for one in missing_rights(conn, loaded.cluster) if one.ability == "CREATE_SYNC"]


def _sync_by(loaded: LoadedCatalog) -> str:
    """What becomes of a SYNC: "made", or why not; a slon's own is waited for."""
    while True:
        try:
            with asked(loaded) as (conn, catalog):
                create_sync(conn, catalog)
        except TargetLockTimeout:
            continue
        except TargetError as error:
            return error.code
        return "made"


def test_confirmation_by_the_clusters_function_moves_forward_only(slony: SlonyCluster) -> None:
    """The last test of this cluster: its slons are stopped, so that node 3 confirms nothing by itself."""
    slony.catch_up()
    slony.stop_slons()
    with asked(node_of(slony, 2)) as (conn, catalog):
        old = confirmed_upto(conn, catalog)[2, 3]
        made = create_sync(conn, catalog)
        assert 3 in confirmers(conn, catalog, 2, made.seqno).outstanding
        assert confirm(conn, catalog, 2, 3, old) == ConfirmOutcome(False, old, old)
        assert confirm(conn, catalog, 2, 3, made.seqno) == ConfirmOutcome(True, old, made.seqno)
        assert confirm(conn, catalog, 2, 3, made.seqno) == ConfirmOutcome(False, made.seqno, made.seqno)
        assert confirmers(conn, catalog, 2, made.seqno).outstanding == (1,)
        [told] = [one for one in read_matrix(conn, catalog) if (one.origin, one.receiver) == (2, 3)]
    assert (told.seqno, told.lag_events, told.lag) == (made.seqno, 0, timedelta(0))
    with closing(slony.connect(2)) as raw:
        [(difference,)] = raw.execute(
            "select now() - con_timestamp from sl_confirm"
            " where con_origin = 2 and con_received = 3 and con_seqno = %s",
            (made.seqno,),
        ).fetchall()
    assert timedelta(0) <= difference < DIFFERENCE_MAX
