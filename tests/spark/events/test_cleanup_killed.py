"""The backend ends between any two statements: what is left is a catalog, and a repetition ends right."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from spark.events.catalog import read_catalog
from spark.events.cleaning.errors import UnconfirmedWouldGo
from spark.events.cleaning.log_switch import heal_status, start_switch, try_finish
from spark.events.cleaning.log_tables import has_rows
from spark.events.cleaning.native import NativeUnit, run_native
from spark.events.cleaning.plan import plan_cleanup
from spark.events.cleaning.records import Healed
from spark.events.cleanup import log_step
from spark.events.unit import UnitJob
from spark.targets.connection import Connection
from spark.targets.errors import TargetUnreachable
from tests.slony_cluster import SlonyCluster
from tests.spark.events.catalogs import LoadedCatalog
from tests.spark.events.cleaning import clean_up
from tests.spark.events.dying import DyingConnection, end_backend, wait_for_lock
from tests.spark.events.random_catalogs import CUTOFF, contents, put, settled_catalog

JOB = UnitJob("job-1", 1, "cleanup", has_ledger=False)
NATIVE = NativeUnit("job-1", 1, "cleanup", False, CUTOFF, 60_000)
STATEMENTS_MAX = 500
Work = Callable[[Connection, LoadedCatalog], object]


@pytest.fixture
def node(bare_slony: SlonyCluster) -> LoadedCatalog:
    """A catalog with its functions; its rows are replaced."""
    return LoadedCatalog(bare_slony.url(1), bare_slony.name)


def _builtin(conn: Connection, node: LoadedCatalog) -> object:
    catalog = read_catalog(conn, node.cluster)
    heal_status(conn, catalog)
    plan = plan_cleanup(conn, catalog, confirmed_before=CUTOFF)
    assert plan.hazards == ()
    clean_up(conn, plan, catalog, JOB, rows_max=3)
    return log_step(conn, catalog)


def _native(conn: Connection, node: LoadedCatalog) -> object:
    catalog = read_catalog(conn, node.cluster)
    heal_status(conn, catalog)
    return run_native(conn, catalog, NATIVE)


def _switch(conn: Connection, node: LoadedCatalog) -> object:
    """To the end of a switch, whatever state it is in."""
    catalog = read_catalog(conn, node.cluster)
    heal_status(conn, catalog)
    start_switch(conn, catalog)
    return try_finish(conn, catalog)


def _to_the_end(work: Work, conn: Connection, node: LoadedCatalog) -> None:
    """Work, and ask for something more: the backend may have ended after the last statement."""
    work(conn, node)
    conn.execute("select 1")


def _whole(node: LoadedCatalog, work: Work) -> tuple[int, dict[str, Any]]:
    """How many statements it takes, and what it leaves."""
    with DyingConnection(node, lives=STATEMENTS_MAX) as conn:
        work(conn, node)
        return STATEMENTS_MAX - conn.left, contents(node)


@pytest.mark.long
@pytest.mark.parametrize(
    ("work", "status", "step"),
    [(_builtin, 2, 13), (_builtin, 0, 23), (_switch, 0, 3), (_switch, 2, 1), (_switch, 3, 5)],
    ids=["builtin-2", "builtin-0", "switch-0", "switch-2", "switch-3"],
)
def test_backend_ending_anywhere_leaves_no_row_in_a_clean_log(
    node: LoadedCatalog, work: Work, status: int, step: int
) -> None:
    put(node, settled_catalog(status))
    statements, _ = _whole(node, work)
    assert statements > 15
    put(node, settled_catalog(status))
    before = contents(node)
    for lives in range(1, statements, step):
        put(node, settled_catalog(status))
        with pytest.raises(TargetUnreachable), DyingConnection(node, lives=lives) as conn:
            _to_the_end(work, conn, node)
        left = contents(node)
        _check_prefix(before, left)
        _check_repeated(node, work)


def _check_prefix(before: dict[str, Any], left: dict[str, Any]) -> None:
    """Of each origin the lowest events are gone and no others; the bound is there; no clean log has rows."""
    for origin in (1, 2, 3):
        then = [row for row in before["sl_event"] if row[0] == origin]
        now = [row for row in left["sl_event"] if row[0] == origin]
        assert now == then[len(then) - len(now) :]
        assert now[0][1] <= 5_000_000_006
    status = left["sl_log_status"]
    if not status & 2:
        assert left["sl_log_1" if status & 1 else "sl_log_2"] == []


def _check_repeated(node: LoadedCatalog, work: Work) -> None:
    """The program's own cleanup accepts what was left, and so does a repetition, which ends what it began."""
    with node.connect() as conn:
        work(conn, node)
        catalog = read_catalog(conn, node.cluster)
        try_finish(conn, catalog)
        plan = plan_cleanup(conn, catalog, confirmed_before=CUTOFF)
        assert plan.hazards == ()
        if work is _builtin:
            assert plan.rows_to_remove == 0
        else:
            assert run_native(conn, catalog, NATIVE).classification == "AS_PLANNED"
    rows = contents(node)
    replicated = {650 + number for number in range(5)}
    logged = [row[1] for table in ("sl_log_1", "sl_log_2") for row in rows[table]]
    assert sorted(set(logged) - replicated) == [800, 801, 802, 803, 804]


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_native_ending_between_two_statements_is_done_whole_or_not_at_all(
    node: LoadedCatalog, every: int
) -> None:
    status = 2
    put(node, settled_catalog(status))
    before = contents(node)
    statements, whole = _whole(node, _native)
    for lives in range(statements - 1, 0, -every):  # the last ones end after the function's call
        put(node, settled_catalog(status))
        with pytest.raises(TargetUnreachable), DyingConnection(node, lives=lives) as conn:
            _to_the_end(_native, conn, node)
        left = contents(node)
        was_called = left["sl_event"] != before["sl_event"]
        assert _rows(left) == _rows(whole if was_called else before)


def _rows(found: dict[str, Any]) -> dict[str, Any]:
    return {table: rows for table, rows in found.items() if table not in ("sl_registry", "indices")}


def test_function_ended_after_its_setval_is_healed_and_repeated(node: LoadedCatalog) -> None:
    put(node, settled_catalog(2))
    before = contents(node)
    ended: list[BaseException] = []

    def call() -> None:
        with node.connect() as conn:
            try:
                _native(conn, node)
            except TargetUnreachable as error:
                ended.append(error)

    with node.raw(autocommit=False) as raw:
        # What the function reads after it has truncated and changed the status.
        raw.execute("lock table sl_set in access exclusive mode")
        caller = threading.Thread(target=call)
        caller.start()
        end_backend(node, wait_for_lock(node, "job-1:"))
        raw.rollback()
    caller.join(30)

    assert len(ended) == 1
    left = contents(node)
    assert left["sl_log_status"] == 0
    assert _rows({**left, "sl_log_status": 2}) == _rows(before)  # "log_2 is clean", and all its rows are back
    with node.connect() as conn:
        catalog = read_catalog(conn, node.cluster)
        [healed] = [heal_status(conn, catalog)]
        assert isinstance(healed, Healed)
        assert (healed.before, healed.after, healed.table) == (0, 2, "sl_log_2")
        assert contents(node)["sl_log_2"] == before["sl_log_2"]
        assert heal_status(conn, catalog) is None
        assert run_native(conn, catalog, NATIVE).classification == "AS_PLANNED"
        assert not has_rows(conn, node.schema, "sl_log_2")


def test_dry_run_of_the_program_that_was_rolled_back_is_healed(node: LoadedCatalog) -> None:
    put(node, settled_catalog(2))
    before = contents(node)
    with node.raw(autocommit=False) as raw:
        raw.execute("select cleanupEvent('0 seconds')")
        raw.rollback()
    with node.connect() as conn:
        catalog = read_catalog(conn, node.cluster)
        plan = plan_cleanup(conn, catalog, confirmed_before=CUTOFF)
        with pytest.raises(UnconfirmedWouldGo):
            run_native(conn, catalog, NATIVE)
        healed = heal_status(conn, catalog)

    assert [item.kind for item in plan.hazards] == ["CLEAN_LOG_HAS_ROWS"]
    assert plan.log_switch.step == "HEAL"
    assert isinstance(healed, Healed)
    assert _rows(contents(node)) == _rows(before)
