"""The feed never goes on over a gap: cleanup, log switch, a node put back, and all of them while it reads."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing, suppress
from typing import Any

import psycopg
import pytest

from spark.events.catalog import read_catalog
from spark.events.feed.errors import (
    FeedSetUnknown,
    NeedsTotal,
    OriginElsewhere,
    PositionNotASync,
    ReaderTooSlow,
)
from spark.events.feed.position import hold_log
from spark.events.feed.reading import HOLD_MAX_S, Asked, read_page
from spark.events.feed.records import Change
from spark.events.feed.snapshot import TxidSnapshot
from spark.targets.connection import SessionLimits
from spark.targets.errors import TargetLockTimeout, TargetReadOnly, TargetUnreachable
from tests.spark.events.catalogs import Catalogs, LoadedCatalog
from tests.spark.events.feed.random_logs import BASE, ORIGIN, History, Logged, store

pytestmark = pytest.mark.postgresql
FIRST, SECOND, THIRD = BASE + 1, BASE + 2, BASE + 3
MANY = 20_000
ROUNDS = 10


def three_syncs(rows: int = 3) -> History:
    """Behind the first SYNC a transaction of one row, behind the second one of many."""
    made = History(began={10: 1, 11: 3}, ended={10: 2, 11: 5}, committed={10, 11})
    made.syncs = [(FIRST, 0), (SECOND, 4), (THIRD, 6)]
    made.rows = [_insert(10, 1, "sl_log_1")]
    made.rows += [_insert(11, 2 + number, "sl_log_2" if number % 2 else "sl_log_1") for number in range(rows)]
    return made


def many_rows(node: LoadedCatalog) -> None:
    """The same with MANY rows behind the second SYNC, written by the server."""
    store(node, three_syncs(0))
    for log, odd in (("sl_log_1", 0), ("sl_log_2", 1)):
        node.execute(
            f"insert into {log} select 1, 11, 1, 2 + n, 'public', 't1', 'I', 0, array['id', n::text]"
            f" from generate_series(0, {MANY - 1}) n where n % 2 = {odd}"
        )


def _insert(txid: int, actionseq: int, log: str) -> Logged:
    return Logged(ORIGIN, txid, actionseq, 1, "I", 0, ["id", str(actionseq)], log)


def cleaned(node: LoadedCatalog, upto: int, *, empty: str = "sl_log_1, sl_log_2") -> None:
    """What a cleanup with the end of a log switch leaves, in one transaction as cleanupEvent has it."""
    node.execute(
        f"delete from sl_event where ev_origin = 1 and ev_seqno < {upto}",
        f"lock table {empty} in access exclusive mode nowait",
        f"truncate {empty}",
    )


def read(node: LoadedCatalog, after: int | None, **asked: Any) -> list[Change]:
    with node.connect(read_only=True) as conn:
        catalog = read_catalog(conn, node.cluster)
        with conn.transaction(read_only=True):
            page = read_page(conn, catalog, Asked(ORIGIN, after, **asked))
            return [change for block in page.blocks for change in block]


@pytest.fixture
def node(catalogs: Catalogs) -> LoadedCatalog:
    found = catalogs.empty()
    store(found, three_syncs())
    return found


def test_a_position_that_was_cleaned_away_needs_a_total(node: LoadedCatalog) -> None:
    assert len(read(node, FIRST)) == 1 + 3 + 2
    cleaned(node, SECOND, empty="sl_log_1")
    with pytest.raises(NeedsTotal, match=f"{FIRST} was cleaned away, {SECOND} is the oldest left"):
        read(node, FIRST)
    assert read(node, SECOND)[-1].seqno == THIRD


def test_the_newest_position_that_was_cleaned_away_needs_a_total_though_nothing_follows(
    node: LoadedCatalog,
) -> None:
    node.execute(f"delete from sl_event where ev_origin = 1 and ev_seqno in ({SECOND})")
    with pytest.raises(NeedsTotal, match="there is no event"):
        read(node, SECOND)


def test_units_behind_many_syncs_that_end_none_are_found(catalogs: Catalogs) -> None:
    """Once a page of one unit looked at four SYNCs: behind a later copy it was empty, and stayed empty."""
    node = catalogs.empty()
    made = three_syncs()
    made.syncs = [(FIRST, 0), *((SECOND + number, 0) for number in range(9)), (SECOND + 9, 6)]
    store(node, made)
    found = read(node, FIRST, copied=TxidSnapshot.parse(made.snapshot(4)), units_max=1)
    assert [change.kind for change in found] == ["INSERT"] * 3 + ["SYNC"]
    assert found[-1].seqno == SECOND + 9


def test_an_origin_without_any_sync_proves_nothing(node: LoadedCatalog) -> None:
    node.execute("delete from sl_event where ev_origin = 1")
    for after in (FIRST, None):
        with pytest.raises(NeedsTotal, match="no SYNC of origin 1"):
            read(node, after)


def test_a_position_of_the_future_needs_a_total(node: LoadedCatalog) -> None:
    with pytest.raises(NeedsTotal, match=f"of the future: the newest here is {THIRD}"):
        read(node, THIRD + 1)


def test_another_sync_under_the_same_number_needs_a_total(node: LoadedCatalog) -> None:
    [(snapshot,)] = node.query(
        f"select ev_snapshot::text from sl_event where ev_origin = 1 and ev_seqno = {SECOND}"
    )
    assert read(node, SECOND, snapshot=snapshot)
    node.execute(f"update sl_event set ev_snapshot = '700:700:' where ev_origin = 1 and ev_seqno = {SECOND}")
    with pytest.raises(NeedsTotal, match="restored from a backup"):
        read(node, SECOND, snapshot=snapshot)


def test_a_node_that_counts_its_transactions_anew_needs_a_total(node: LoadedCatalog) -> None:
    """Put back from a dump: no SYNC follows one of before, and a reader once waited for ever."""
    ahead = f"{(1 << 31) - 1}:{(1 << 31) - 1}:"
    node.execute(f"update sl_event set ev_snapshot = '{ahead}' where ev_origin = 1 and ev_seqno <= {SECOND}")
    for after in (FIRST, SECOND, None):
        with pytest.raises(NeedsTotal, match="restored from a dump"):
            read(node, after)
    assert read(node, THIRD) == []


def test_a_cleaner_cannot_empty_a_log_table_while_a_unit_is_read(catalogs: Catalogs) -> None:
    node = catalogs.empty()
    many_rows(node)
    with node.connect(read_only=True) as conn:
        catalog = read_catalog(conn, node.cluster)
        with conn.transaction(read_only=True):
            page = read_page(conn, catalog, Asked(ORIGIN, FIRST))
            found = next(page.blocks)
            with pytest.raises(psycopg.errors.LockNotAvailable):
                cleaned(node, THIRD)
            # Events alone may go meanwhile: the unit that is read has its own view of them.
            node.execute(f"delete from sl_event where ev_origin = 1 and ev_seqno < {THIRD}")
            found += [change for block in page.blocks for change in block]
    assert [change.actionseq for change in found if change.kind == "INSERT"] == list(range(1, MANY + 2))
    cleaned(node, THIRD)
    with pytest.raises(NeedsTotal):
        read(node, FIRST)


def test_a_table_emptied_between_the_begin_and_the_lock_is_found(catalogs: Catalogs) -> None:
    """The hole of a naive reader: it finds its SYNC in an old snapshot, and the table empty of rows."""
    node = catalogs.empty()
    store(node, three_syncs())
    with node.connect(read_only=True) as conn:
        catalog = read_catalog(conn, node.cluster)
        with conn.transaction(read_only=True):
            cleaned(node, THIRD)
            with pytest.raises(NeedsTotal):
                read_page(conn, catalog, Asked(ORIGIN, FIRST))


def test_a_cleaner_that_runs_all_the_time_is_never_read_over(catalogs: Catalogs) -> None:
    """Each round: rows, a SYNC, and a cleaner beside the reader. What is read is whole, or refused."""
    node = catalogs.empty()
    refused = whole = 0
    for _round in range(ROUNDS):
        store(node, three_syncs(50))
        ready = threading.Barrier(2)

        def clean(ready: threading.Barrier = ready) -> None:
            ready.wait()
            for _ in range(50):
                with suppress(psycopg.errors.LockNotAvailable):
                    cleaned(node, THIRD)
                    return

        cleaner = threading.Thread(target=clean)
        cleaner.start()
        ready.wait()
        try:
            found = read(node, FIRST)
        except (NeedsTotal, TargetLockTimeout):
            refused += 1
        else:
            assert [change.actionseq for change in found if change.kind == "INSERT"] == list(range(1, 52))
            whole += 1
        cleaner.join()
    assert refused + whole == ROUNDS


@pytest.mark.parametrize(
    ("looks", "advice"), [(0, f"SYNC 1,{SECOND} alone takes longer.* first copy"), (1, "for fewer units")]
)
def test_a_reader_that_is_too_slow_is_cut_off(node: LoadedCatalog, looks: int, advice: str) -> None:
    """The story: of a slon that was down for a night came one unit that took longer than the log may be held.
    Each attempt of its feed was advised to ask for fewer units, of which it had asked for one."""
    times = iter([0.0, *[1.0] * looks, HOLD_MAX_S + 1])
    with node.connect(read_only=True) as conn:
        catalog = read_catalog(conn, node.cluster)
        with conn.transaction(read_only=True):
            page = read_page(conn, catalog, Asked(ORIGIN, FIRST), clock=lambda: next(times))
            with pytest.raises(ReaderTooSlow, match=advice):
                list(page.blocks)


def await_cleaned(node: LoadedCatalog) -> None:
    """Clean as soon as the server has ended the session that holds the log."""
    deadline = time.monotonic() + 30
    while True:
        with suppress(psycopg.errors.LockNotAvailable):
            return cleaned(node, THIRD)
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_reader_that_stalls_gives_the_log_free_and_reads_no_further(catalogs: Catalogs) -> None:
    node = catalogs.empty()
    many_rows(node)
    limits = SessionLimits(idle_in_transaction_timeout_ms=300)
    with node.connect(read_only=True, limits=limits) as conn:
        catalog = read_catalog(conn, node.cluster)
        with ExitStack() as stack:
            stack.enter_context(pytest.raises(TargetUnreachable))
            stack.enter_context(conn.transaction(read_only=True))
            page = read_page(conn, catalog, Asked(ORIGIN, FIRST))
            next(page.blocks)
            await_cleaned(node)
            list(page.blocks)


def test_the_lock_is_not_waited_for_longer_than_the_limit(node: LoadedCatalog) -> None:
    with closing(node.raw(autocommit=False)) as other:
        other.execute("lock table sl_log_2 in access exclusive mode")
        with node.connect(read_only=True, limits=SessionLimits(lock_timeout_ms=50)) as conn:
            catalog = read_catalog(conn, node.cluster)
            with pytest.raises(TargetLockTimeout), conn.transaction(read_only=True):
                hold_log(conn, catalog)


def test_only_the_origin_itself_is_read(catalogs: Catalogs) -> None:
    node = catalogs.empty(node=2)
    store(node, three_syncs())
    with pytest.raises(OriginElsewhere, match="this is node 2"):
        read(node, FIRST)


def test_a_position_is_a_sync_and_a_set_is_the_origins(node: LoadedCatalog) -> None:
    node.execute(
        "insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type)"
        f" values (1, {THIRD + 1}, now(), '1:1:', 'STORE_SET')"
    )
    with pytest.raises(PositionNotASync, match="STORE_SET"):
        read(node, THIRD + 1)
    for strange in (3, 99):
        with pytest.raises(FeedSetUnknown, match=f"set {strange} is none of origin 1 \\(it has 1, 2\\)"):
            read(node, FIRST, sets=frozenset({1, strange}))


def test_a_role_that_may_only_read_is_enough_and_one_that_may_not_is_refused(
    catalogs: Catalogs, node: LoadedCatalog
) -> None:
    role = catalogs.role()
    logs = "sl_log_1, sl_log_2, sl_log_script, sl_seqlog"
    tables = f"sl_event, {logs}, sl_table, sl_sequence, sl_set, sl_node, sl_path"
    node.execute(
        f'grant usage on schema "{node.schema}" to {role}',
        f"grant select on {tables}, sl_local_node_id to {role}",
    )
    assert len(read(node.as_role(role), FIRST)) == 6
    node.execute(f"revoke select on sl_log_2 from {role}")
    with pytest.raises(TargetReadOnly):
        read(node.as_role(role), FIRST)
