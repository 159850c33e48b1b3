"""The log switch beside writers, other cleaners and what they leave: nothing unconfirmed is ever emptied."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from spark.events.catalog import read_catalog
from spark.events.cleaning.cluster_lock import locked
from spark.events.cleaning.errors import ClusterLocked
from spark.events.cleaning.log_switch import heal_status, read_log_status, start_switch, try_finish
from spark.events.cleaning.records import Blocked, Finished, Healed, Started
from spark.events.cleanup import log_step
from spark.events.records import Catalog
from spark.targets.connection import Connection, Row
from spark.targets.dialects.dialect import Params
from tests.spark.events.catalogs import Catalogs, LoadedCatalog
from tests.spark.events.dying import wait_for_lock
from tests.spark.events.random_catalogs import contents, put, settled_catalog

# Not in the snapshot of the oldest SYNC (xmin 710), in the settled catalog's order of columns.
LATE_ROW = "insert into {table} (log_origin, log_txid, log_tableid, log_actionseq, log_cmdtype)"
LATE_ROW += " values (1, 900, 1, 99, 'I')"
EARLIER = "now() - interval '1 day'"


@pytest.fixture
def node(catalogs: Catalogs) -> LoadedCatalog:
    """Three nodes, status 2: log_1 is written, log_2 is drained."""
    loaded = catalogs.empty(cluster='Odd "name"')
    put(loaded, settled_catalog(2))
    return loaded


@contextmanager
def _opened(node: LoadedCatalog) -> Iterator[tuple[Connection, Catalog]]:
    with node.connect() as conn:
        yield conn, read_catalog(conn, node.cluster)


class _Hooked(Connection):
    """Does something between two statements."""

    def __init__(self, node: LoadedCatalog, before: str, hook: Callable[[], None]) -> None:
        super().__init__(node.target, application_name="lethe-hooked")
        self._before = before
        self._hook = hook

    def execute(self, sql: str, params: Params = None) -> list[Row]:
        """As Connection; the first statement that begins so waits for the hook."""
        if sql.startswith(self._before):
            self._before = "nothing begins so"
            self._hook()
        return super().execute(sql, params)


class _Killed(Exception):
    """The service ends here; the server rolls back what is open."""


class _Mortal(Connection):
    """Dies behind the statement that changes the status."""

    def __init__(self, node: LoadedCatalog) -> None:
        super().__init__(node.target, application_name="lethe-mortal")

    def execute(self, sql: str, params: Params = None) -> list[Row]:
        """As Connection."""
        rows = super().execute(sql, params)
        if "setval" in sql:
            raise _Killed
        return rows


def test_drained_log_is_emptied_and_the_status_follows(node: LoadedCatalog) -> None:
    with _opened(node) as (conn, catalog):
        seen = read_log_status(conn, catalog)
        ended = try_finish(conn, catalog)
        idle = try_finish(conn, catalog)

    assert [(item.origin, item.is_drained) for item in seen.origins] == [(1, True), (2, True)]
    assert (seen.status, seen.active.name, seen.other.name, seen.other.is_empty) == (
        2,
        "sl_log_1",
        "sl_log_2",
        False,
    )
    assert ended == Finished("FINISHED", seen.status, seen.status.finished, "sl_log_2")
    assert idle == Finished("IDLE", seen.status.finished, seen.status.finished, None)
    rows = contents(node)
    assert (rows["sl_log_status"], rows["sl_log_2"], len(rows["sl_log_1"])) == (0, [], 5)


def test_start_notes_the_instant_and_is_idempotent(node: LoadedCatalog) -> None:
    put(node, settled_catalog(1))
    with _opened(node) as (conn, catalog):
        first = start_switch(conn, catalog)
        again = start_switch(conn, catalog)
        seen = read_log_status(conn, catalog)

    assert first == Started("STARTED", first.before, first.after)
    assert (first.before, first.after) == (1, 2)
    assert again == Started("ALREADY_SWITCHING", first.after, first.after)
    assert seen.started_at is not None


def test_open_writer_of_the_old_log_keeps_it_and_is_named(node: LoadedCatalog) -> None:
    with _opened(node) as (conn, catalog), node.raw(autocommit=False) as writer:
        pid = writer.info.backend_pid
        writer.execute(LATE_ROW.format(table="sl_log_2"))
        blocked = try_finish(conn, catalog)
        writer.commit()
        undrained = try_finish(conn, catalog)

    assert isinstance(blocked, Blocked)
    assert (blocked.why, blocked.table) == ("LOCKED", "sl_log_2")
    assert [(item.pid, item.has_lock) for item in blocked.sessions] == [(pid, True)]
    assert isinstance(undrained, Blocked)
    assert undrained.why == "NOT_DRAINED"
    assert [(item.origin, item.undrained_txid) for item in undrained.origins] == [(1, 900), (2, None)]
    assert len(contents(node)["sl_log_2"]) == 11


def test_row_committed_before_the_lock_is_seen_by_the_check(node: LoadedCatalog) -> None:
    def write() -> None:
        node.execute(LATE_ROW.format(table="sl_log_2"))

    with _Hooked(node, "lock table", write) as conn:
        blocked = try_finish(conn, read_catalog(conn, node.cluster))

    assert isinstance(blocked, Blocked)
    assert blocked.why == "NOT_DRAINED"
    assert len(contents(node)["sl_log_2"]) == 11


def test_row_written_between_truncate_and_status_keeps_the_switch_open(node: LoadedCatalog) -> None:
    writers: list[threading.Thread] = []

    def write_behind_the_lock() -> None:
        """A writer that read the status before the switch: it waits, and writes when the lock is gone."""
        thread = threading.Thread(target=node.execute, args=[LATE_ROW.format(table="sl_log_2")])
        thread.start()
        writers.append(thread)
        wait_for_lock(node, "")

    with _Hooked(node, "truncate", write_behind_the_lock) as conn:
        blocked = try_finish(conn, read_catalog(conn, node.cluster))
    writers[0].join(10)

    assert isinstance(blocked, Blocked)
    assert blocked.why in ("NOT_DRAINED", "LOCKED")
    rows = contents(node)
    assert rows["sl_log_status"] == 2  # both logs are read, so the row is not lost
    assert rows["sl_log_2"] == [[1, 900, 1, 99, "I"]]


def test_transaction_from_before_the_switch_keeps_it_open_without_any_lock(node: LoadedCatalog) -> None:
    put(node, settled_catalog(0))
    with _opened(node) as (conn, catalog), node.raw(autocommit=False) as writer:
        pid = writer.info.backend_pid
        # It has read the status for this transaction, and its first row was rolled back with the lock.
        writer.execute("savepoint one")
        writer.execute(LATE_ROW.format(table="sl_log_1"))
        writer.execute("rollback to savepoint one")
        start_switch(conn, catalog)
        node.execute("truncate sl_log_1")
        blocked = try_finish(conn, catalog)
        writer.execute(LATE_ROW.format(table="sl_log_1"))
        writer.commit()
        late = try_finish(conn, catalog)

    assert isinstance(blocked, Blocked)
    assert blocked.why == "OLD_TRANSACTION"
    assert [item.pid for item in blocked.sessions] == [pid]
    assert isinstance(late, Blocked)
    assert late.why == "NOT_DRAINED"
    assert contents(node)["sl_log_status"] == 3


@pytest.mark.parametrize("healed", [False, True], ids=["started", "healed"])
def test_switch_whose_start_was_cut_off_waits_for_transactions_from_before_it(
    node: LoadedCatalog, healed: bool
) -> None:
    """The status is switched for good, the note of the start is not: an earlier one must not stand for it."""
    put(node, settled_catalog(0))
    with _opened(node) as (conn, catalog), node.raw(autocommit=False) as writer:
        node.execute(
            f"insert into sl_registry (reg_key, reg_timestamp) values ('logswitch.laststart', {EARLIER})"
        )
        writer.execute("savepoint one")
        writer.execute(LATE_ROW.format(table="sl_log_1"))
        writer.execute("rollback to savepoint one")
        if healed:
            node.execute(LATE_ROW.format(table="sl_log_2"))
        with pytest.raises(_Killed), _Mortal(node) as dying:
            (heal_status if healed else start_switch)(dying, catalog)
        node.execute("truncate sl_log_1", "truncate sl_log_2")
        cut_off = read_log_status(conn, catalog)
        blocked = try_finish(conn, catalog)
        writer.commit()
        ended = try_finish(conn, catalog)

    assert cut_off.status.is_switching
    assert cut_off.started_at is None
    assert isinstance(blocked, Blocked)
    assert blocked.why == "OLD_TRANSACTION"
    assert isinstance(ended, Finished)


def test_idle_transaction_that_wrote_elsewhere_after_the_switch_holds_nothing(node: LoadedCatalog) -> None:
    with _opened(node) as (conn, catalog), node.raw(autocommit=False) as idle:
        pid = idle.info.backend_pid
        put(node, settled_catalog(0))
        start_switch(conn, catalog)
        node.execute("truncate sl_log_1")
        idle.execute("select txid_current()")
        seen = read_log_status(conn, catalog)
        ended = try_finish(conn, catalog)

    assert [(item.pid, item.state, item.is_older) for item in seen.sessions] == [
        (pid, "idle in transaction", False)
    ]
    assert isinstance(ended, Finished)


@pytest.mark.parametrize(
    ("change", "reason", "receiver"),
    [
        ("delete from sl_event where ev_origin = 1 and ev_type = 'SYNC'", "NO_SYNC", None),
        ("delete from sl_confirm where con_origin = 1 and con_received = 3", "NOT_CONFIRMED", 3),
        ("delete from sl_confirm where con_origin = 1 and con_seqno > 5000000001", "NOT_CONFIRMED", 2),
        ("insert into sl_node values (4, true, 'new', false)", "NOT_CONFIRMED", 4),
        ("update sl_event set ev_snapshot = '640:640:' where ev_seqno = 5000000002", "NOT_DRAINED", None),
    ],
)
def test_origin_that_is_not_proved_replicated_blocks(
    node: LoadedCatalog, change: str, reason: str, receiver: int | None
) -> None:
    node.execute(change)
    with _opened(node) as (conn, catalog):
        blocked = try_finish(conn, catalog)

    assert isinstance(blocked, Blocked)
    assert (blocked.why, blocked.origins[0].reason, blocked.origins[0].receiver) == (
        "NOT_DRAINED",
        reason,
        receiver,
    )
    assert len(contents(node)["sl_log_2"]) == 10


def test_rows_of_a_node_that_is_gone_block_nothing(node: LoadedCatalog) -> None:
    node.execute(
        "delete from sl_node where no_id = 2",
        "delete from sl_event where ev_origin = 2",
        "delete from sl_confirm where 2 in (con_origin, con_received)",
    )
    with _opened(node) as (conn, catalog):
        assert isinstance(try_finish(conn, catalog), Finished)


def test_clean_log_with_rows_is_healed_before_anything_else(node: LoadedCatalog) -> None:
    node.query("select setval('sl_log_status', 0)")  # as a cleanup leaves it that was rolled back
    with _opened(node) as (conn, catalog):
        assert read_log_status(conn, catalog).needs_healing
        assert start_switch(conn, catalog).outcome == "NOT_CLEAN"
        healed = log_step(conn, catalog)
        assert isinstance(healed, Healed)
        assert (healed.before, healed.after, healed.table) == (0, 2, "sl_log_2")
        assert heal_status(conn, catalog) is None
        assert len(contents(node)["sl_log_2"]) == 10
        assert isinstance(log_step(conn, catalog), Finished)


def test_switch_that_another_cleaner_has_ended_meanwhile_is_told_so(node: LoadedCatalog) -> None:
    turns = iter([lambda: None, lambda: node.query("select setval('sl_log_status', 0)")])

    class Second(_Hooked):
        """The hook runs before every lock of the cluster."""

        def execute(self, sql: str, params: Params = None) -> list[Row]:
            if sql.startswith("lock table") and "sl_config_lock" in sql:
                next(turns)()
            return super().execute(sql, params)

    with Second(node, "never", lambda: None) as conn:
        ended = try_finish(conn, read_catalog(conn, node.cluster))
    assert isinstance(ended, Finished)
    assert (ended.outcome, ended.after) == ("BY_ANOTHER", 0)


def test_second_cleaner_is_told_that_the_cluster_is_locked(node: LoadedCatalog) -> None:
    with _opened(node) as (first, catalog), _opened(node) as (second, _), locked(first, catalog):
        for work in (start_switch, try_finish, heal_status):
            with pytest.raises(ClusterLocked) as caught:
                work(second, catalog)
            assert caught.value.transient
            assert caught.value.code == "CLUSTER_LOCKED"
    assert contents(node)["sl_log_status"] == 2
