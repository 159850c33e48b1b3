"""NATIVE with the cluster's own functions: what they leave is the plan, and what BUILTIN leaves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spark.events.catalog import read_catalog
from spark.events.cleaning.errors import BeyondReviewed, UnconfirmedWouldGo
from spark.events.cleaning.native import NativeUnit, run_native
from spark.events.cleaning.native_outcome import classify
from spark.events.cleaning.plan import plan_cleanup
from spark.events.cleaning.records import TABLE_OF, CleanupPlan, NativeResult, Reviewed, bounds_of
from spark.events.cleanup import log_step
from spark.events.errors import FunctionsMissing
from spark.events.unit import UnitJob
from spark.formats.slony import SYNC
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger
from tests.slony_cluster import SlonyCluster
from tests.spark.events.catalogs import Catalogs, LoadedCatalog
from tests.spark.events.cleaning import clean_up
from tests.spark.events.random_catalogs import (
    CUTOFF,
    FIRST_SEQNO,
    RandomCatalog,
    contents,
    put,
    random_catalog,
    settled_catalog,
)

RANDOM_CASES = 6
JOB = UnitJob("job-1", 1, "cleanup", has_ledger=False)
NATIVE = NativeUnit("job-1", 1, "cleanup", False, CUTOFF, 60_000)


@pytest.fixture
def node(bare_slony: SlonyCluster) -> LoadedCatalog:
    """A catalog with its functions; its rows are replaced."""
    return LoadedCatalog(bare_slony.url(1), bare_slony.name)


@pytest.mark.parametrize(
    "seed",
    [*range(RANDOM_CASES), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(RANDOM_CASES, 40))],
)
def test_random_catalog_has_the_same_rows_after_program_native_and_builtin(
    node: LoadedCatalog, seed: int
) -> None:
    check_case(node, random_catalog(seed))


def check_case(node: LoadedCatalog, case: RandomCatalog) -> str:
    """One catalog three times; what it was a case of."""
    put(node, case)
    before = contents(node)
    plan = _plan(node)
    assert contents(node) == before

    builtin, step = _builtin(node, plan)
    _check_counts(plan, before, builtin)
    _check_confirmed(case, before, builtin)

    put(node, case)
    if plan.hazards:
        with pytest.raises(UnconfirmedWouldGo):
            _native(node)
        assert contents(node) == before
    _call_program(node)
    program = contents(node)
    kinds = {item.kind for item in plan.hazards}
    if kinds == {"CLEAN_LOG_HAS_ROWS"}:
        assert {**program, "sl_log_status": 0} == {
            **builtin,
            "sl_log_status": 0,
            "sl_registry": program["sl_registry"],
        }
        return "HEAL"
    if kinds:
        assert _comparable(program) != _comparable(builtin)
        assert _is_within(program, builtin)
        return "HAZARD"

    put(node, case)
    result = _native(node)
    assert (result.classification, result.differences) == ("AS_PLANNED", ())
    assert result.removed == plan.to_remove
    assert _comparable(contents(node)) == _comparable(program) == _comparable(builtin)
    return step


def _plan(node: LoadedCatalog) -> CleanupPlan:
    with node.connect() as conn:
        return plan_cleanup(conn, read_catalog(conn, node.cluster), confirmed_before=CUTOFF)


def _builtin(node: LoadedCatalog, plan: CleanupPlan) -> tuple[dict[str, Any], str]:
    with node.connect() as conn:
        catalog = read_catalog(conn, node.cluster)
        clean_up(conn, plan, catalog, JOB, rows_max=6)
        step = log_step(conn, catalog)
    return contents(node), type(step).__name__


def _native(node: LoadedCatalog) -> NativeResult:
    with node.connect() as conn:
        return run_native(conn, read_catalog(conn, node.cluster), NATIVE)


def _call_program(node: LoadedCatalog) -> None:
    node.execute(
        "set local time zone 'UTC'",
        "lock table sl_config_lock",
        f"select cleanupEvent(current_timestamp - timestamptz '{CUTOFF.isoformat()}')",
    )


def _comparable(found: dict[str, Any]) -> dict[str, Any]:
    return {table: rows for table, rows in found.items() if table != "sl_registry"}


def _is_within(program: dict[str, Any], builtin: dict[str, Any]) -> bool:
    """BUILTIN keeps every event and log row that the program keeps."""
    kept = ("sl_event", "sl_log_1", "sl_log_2")
    return all(row in builtin[table] for table in kept for row in program[table])


def _check_counts(plan: CleanupPlan, before: dict[str, Any], after: dict[str, Any]) -> None:
    removed = {step: len(before[table]) - len(after[table]) for step, table in TABLE_OF.items()}
    assert removed == plan.to_remove


def _check_confirmed(case: RandomCatalog, before: dict[str, Any], after: dict[str, Any]) -> None:
    """What has gone was confirmed by every active receiver: said without the plan."""
    nodes = {node for node, *_ in case.rows["sl_node"]}
    active = {node for node, is_active, _, failed in case.rows["sl_node"] if is_active and not failed}
    newest: dict[tuple[int, int], int] = {}
    for origin, receiver, seqno, _ in case.rows["sl_confirm"]:
        newest[origin, receiver] = max(seqno, newest.get((origin, receiver), -1))

    def is_confirmed(origin: int, seqno: int) -> bool:
        return all(newest.get((origin, other), -1) >= seqno for other in active - {origin})

    for origin, seqno, *_ in before["sl_event"]:
        if not any(row[:2] == [origin, seqno] for row in after["sl_event"]):
            assert is_confirmed(origin, seqno)
    for table in ("sl_log_1", "sl_log_2"):
        assert after[table] in ([], before[table])
        for origin, txid, *_ in before[table] if not after[table] else ():
            covering = [
                seqno
                for place, seqno, _, snapshot, kind, *_ in before["sl_event"]
                if place == origin and kind == SYNC and int(snapshot.split(":")[0]) > txid
            ]
            assert origin not in nodes or any(is_confirmed(origin, seqno) for seqno in covering)


def test_cluster_without_functions_is_refused(catalogs: Catalogs) -> None:
    node = catalogs.load("fxa", 1)
    with node.connect() as conn, pytest.raises(FunctionsMissing):
        run_native(conn, read_catalog(conn, node.cluster), NATIVE)


def test_repeated_call_of_a_job_finds_its_ledger_row_and_changes_nothing(node: LoadedCatalog) -> None:
    put(node, random_catalog(3))
    unit = NativeUnit("job-ledger", 1, "cleanup", True, CUTOFF, 60_000)
    with node.connect() as conn:
        catalog = read_catalog(conn, node.cluster)
        assert ensure_ledger(conn)
        raise_fence(conn, "cleanup", token=1, owner="job-ledger")
        first = run_native(conn, catalog, unit)
        left = contents(node)
        again = run_native(conn, catalog, unit)

    assert (first.repeated, again.repeated) == (False, True)
    assert again.removed == first.removed
    assert contents(node) == left


def test_what_was_not_reviewed_is_seen_under_the_lock_and_nothing_is_called(node: LoadedCatalog) -> None:
    """The look before the job's lock was the only one: what was confirmed in between went unreviewed."""
    for seed in range(RANDOM_CASES):
        put(node, random_catalog(seed))
        with node.connect() as conn:
            catalog = read_catalog(conn, node.cluster)
            plan = plan_cleanup(conn, catalog, confirmed_before=CUTOFF)
            if plan.to_remove["EVENT"] and not plan.hazards:
                break
    before = contents(node)
    pairs = {(pair.origin, pair.receiver): pair.newest + 1 for pair in plan.pairs}
    reviewed = Reviewed(bounds_of(plan.origins), pairs, nodelock_rows=plan.nodelock_rows)
    with node.connect() as conn:
        for less in (replace(reviewed, events={}), replace(reviewed, confirmations={})):
            with pytest.raises(BeyondReviewed):
                run_native(conn, catalog, replace(NATIVE, reviewed=less))
            assert contents(node) == before
        assert run_native(conn, catalog, replace(NATIVE, reviewed=reviewed)).removed == plan.to_remove


def test_confirmation_arriving_before_the_call_counts_is_explained(node: LoadedCatalog) -> None:
    put(node, settled_catalog(2))
    with node.connect() as conn:
        catalog = read_catalog(conn, node.cluster)
        plan = plan_cleanup(conn, catalog, confirmed_before=CUTOFF)
        late = CUTOFF - timedelta(seconds=1)
        with node.raw() as raw:
            for pair in plan.pairs:
                raw.execute(
                    "insert into sl_confirm values (%s, %s, %s, %s)",
                    (pair.origin, pair.receiver, FIRST_SEQNO + 9, late),
                )
        _call_program(node)
        result = classify(conn, catalog, plan)

    assert result.classification == "MORE_BY_NEWER_CONFIRMATIONS"


def test_confirmation_of_what_was_never_made_keeps_the_function_away(node: LoadedCatalog) -> None:
    """The story: an origin that was restored from a backup took its receivers' word for what it lost."""
    put(node, settled_catalog(2))
    for receiver in (2, 3):
        node.execute(
            f"insert into sl_confirm values (1, {receiver}, {FIRST_SEQNO + 900}, timestamptz '2000-01-01')"
        )
    before = contents(node)
    with node.connect() as conn:
        catalog = read_catalog(conn, node.cluster)
        with pytest.raises(UnconfirmedWouldGo, match="restored from a backup"):
            run_native(conn, catalog, NATIVE)
    assert contents(node) == before
