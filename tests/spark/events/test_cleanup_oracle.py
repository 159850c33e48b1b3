"""BUILTIN against what the program itself was recorded to do: every case, every step, row for row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any

import pytest

from spark.events.catalog import read_catalog
from spark.events.cleaning.log_switch import start_switch, try_finish
from spark.events.cleaning.log_tables import read_status
from spark.events.cleaning.plan import plan_cleanup
from spark.events.cleaning.records import TABLE_OF, Blocked, CleanupPlan, Finished, Started
from spark.events.cleanup import log_step
from spark.events.unit import UnitJob
from spark.targets.connection import Connection
from tests.spark.events.catalogs import (
    Catalogs,
    LoadedCatalog,
    oracle_cases,
    recorded,
    recorded_columns,
    recorded_rows,
)
from tests.spark.events.cleaning import clean_up

JOB = UnitJob("job-1", 1, "_lab.cleanup", has_ledger=False)
CLEANUP = re.compile(r"cleanupEvent\(current_timestamp - timestamptz '(.+)'\)")


@pytest.mark.parametrize("name", oracle_cases())
def test_recorded_case_leaves_the_recorded_rows(catalogs: Catalogs, name: str) -> None:
    case = recorded(f"oracle/{name}")
    node = catalogs.load(case["state"], case["node"])
    expected = recorded_rows(case["state"], case["node"])

    with node.connect() as conn, _blocker(node, case["blocker"]):
        for step in case["steps"]:
            _replay(node, conn, step)
            expected = _after(expected, step)
            assert _compared(node.rows()) == _compared(expected), step["sql"]
            assert read_status(conn, node.schema) == step["log_status"][1]

    rows = node.rows()
    assert {table: rows[table] for table in case["after"]} == case["after"]
    assert {table: len(rows[table]) for table in case["after_counts"]} == case["after_counts"]
    assert rows["sl_log_status"] == case["after_status"]


@pytest.mark.parametrize("rows_max", [1, 7])
def test_recorded_cleanup_in_units_of_few_rows_leaves_the_same(catalogs: Catalogs, rows_max: int) -> None:
    case = recorded("oracle/fxc.n2.cleanup_080340")
    node = catalogs.load("fxc", 2)

    with node.connect() as conn:
        _clean_up(conn, node, case["steps"][0]["sql"], rows_max=rows_max)

    expected = _after(recorded_rows("fxc", 2), case["steps"][0])
    assert _compared(node.rows()) == _compared(expected)


def _replay(node: LoadedCatalog, conn: Connection, step: dict[str, Any]) -> None:
    """Do what the program did, or write what a function did that Lethe has no counterpart of."""
    sql = step["sql"]
    if "cleanupEvent" in sql:
        _clean_up(conn, node, sql)
        return
    catalog = read_catalog(conn, node.cluster)
    if "logswitch_start" in sql:
        started = start_switch(conn, catalog)
        if step["error"] is None:
            assert started.outcome == "STARTED"
            assert int(started.after.active.removeprefix("sl_log_")) == step["returned"]
        else:
            assert step["error"] == "Previous logswitch still in progress"
            assert started.outcome == "ALREADY_SWITCHING"
    elif "logswitch_finish" in sql:
        finished = try_finish(conn, catalog)
        if step["returned"] == -1:
            assert isinstance(finished, Blocked)
            assert finished.why == "NOT_DRAINED"
        else:
            assert isinstance(finished, Finished)
            assert finished.outcome == "FINISHED"
            assert int(finished.after.active.removeprefix("sl_log_")) == step["returned"]
    else:
        _write_changes(node, step)


def _clean_up(conn: Connection, node: LoadedCatalog, sql: str, *, rows_max: int = 100_000) -> None:
    """One whole cleanup, which does what its plan says."""
    found = CLEANUP.search(sql)
    assert found is not None, sql
    catalog = read_catalog(conn, node.cluster)
    instant = datetime.fromisoformat(found[1])
    plan = plan_cleanup(conn, catalog, confirmed_before=instant)
    rough = plan_cleanup(conn, catalog, confirmed_before=instant, is_counted=False)
    assert _certain(rough) == _certain(plan)
    assert plan.hazards == ()
    before = node.counts()

    removed = clean_up(conn, rough, catalog, JOB, rows_max=rows_max)
    step = log_step(conn, catalog)

    assert removed == {name: rows for name, rows in plan.to_remove.items() if rows}
    after = node.counts()
    for name, rows in plan.to_remove.items():
        if name != "NODELOCK":
            assert before[TABLE_OF[name]] - after[TABLE_OF[name]] == rows
    if isinstance(step, Blocked) and step.why == "LOCKED":
        assert plan.log_switch.step == "FINISH"  # a plan knows of no locks
        assert [item.has_lock for item in step.sessions] == [True]
    else:
        kinds = {"FINISH": Finished, "BLOCKED": Blocked, "START": Started}
        assert isinstance(step, kinds[plan.log_switch.step])


def _certain(plan: CleanupPlan) -> dict[str, Any]:
    """A plan without its counts; of what goes, only whether anything does, and exactly what stays."""
    origins = [
        {
            **asdict(item),
            "rows": item.rows - item.rows_to_remove,
            "rows_to_remove": item.rows_to_remove > 0,
            "syncs_to_remove": None,
        }
        for item in plan.origins
    ]
    pairs = [{**asdict(item), "rows_to_remove": item.rows_to_remove > 0} for item in plan.pairs]
    return {**asdict(plan), "origins": origins, "pairs": pairs, "is_counted": None}


def _write_changes(node: LoadedCatalog, step: dict[str, Any]) -> None:
    columns = recorded_columns()
    with node.raw(autocommit=False) as raw:
        raw.execute("set local session_replication_role = replica")  # foreign keys, in no order of ours
        for table, changes in step["tables"].items():
            names = columns[table]
            matches = " and ".join(f"{_comparable(name)} is not distinct from %s" for name in names)
            for row in changes["removed"]:
                raw.execute(f"delete from {table} where {matches}", row)
            for row in changes["added"]:
                marks = ", ".join(["%s"] * len(names))
                raw.execute(f"insert into {table} ({', '.join(names)}) values ({marks})", row)


def _comparable(column: str) -> str:
    return f"{column}::text" if column.endswith("_snapshot") else column


def _after(rows: dict[str, Any], step: dict[str, Any]) -> dict[str, Any]:
    """The rows before a step with its recorded changes."""
    found = dict(rows)
    for table, changes in step["tables"].items():
        left = list(found[table])
        for row in changes["removed"]:
            left.remove(row)
        found[table] = left + changes["added"]
    found["sl_log_status"] = step["log_status"][1]
    return found


def _compared(rows: dict[str, Any]) -> dict[str, Any]:
    """Rows in one order; sl_registry apart: it has when the last switch began."""
    return {
        table: sorted(map(repr, found)) if isinstance(found, list) else found
        for table, found in rows.items()
        if table != "sl_registry"
    }


@contextmanager
def _blocker(node: LoadedCatalog, table: str | None) -> Iterator[None]:
    """A second session that writes to a log table, and does not end."""
    if table is None:
        yield
        return
    with node.raw(autocommit=False) as raw:
        raw.execute(f"lock table {table} in row exclusive mode")
        yield
        raw.rollback()
