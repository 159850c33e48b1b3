"""A cleanup beside what confirms, deletes, cleans and writes at the same time; MANUAL, archive, ledger."""

from __future__ import annotations

import pickle
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path

import pytest

from spark.events.catalog import read_catalog
from spark.events.cleaning.cluster_lock import locked
from spark.events.cleaning.errors import ClusterLocked
from spark.events.cleaning.log_switch import try_finish
from spark.events.cleaning.plan import plan_cleanup
from spark.events.cleaning.records import Blocked, CleanupPlan, Hazard, Hold
from spark.events.cleanup import CleanupWalk
from spark.events.run import cleanup_work
from spark.events.unit import CleanupUnit, UnitJob, UnitResult, run_unit
from spark.targets.archive.archive import read_rows, read_shape, verify_file
from spark.targets.connection import Connection, SessionLimits
from spark.targets.errors import FenceRaised
from spark.targets.fence import raise_fence
from spark.targets.ledger import StepTotals, archive_manifest, ensure_ledger, ledger_totals
from spark.targets.work import do_unit, open_worker
from tests.spark.events.catalogs import Catalogs, LoadedCatalog
from tests.spark.events.cleaning import clean_up
from tests.spark.events.random_catalogs import CUTOFF, FIRST_SEQNO, contents, put, settled_catalog

JOB = UnitJob("job-1", 1, "cleanup", has_ledger=False)
BOUND = FIRST_SEQNO + 5
"""Of every origin: the newest SYNC up to the sixth event, which the slowest receiver has confirmed."""


@pytest.fixture
def node(catalogs: Catalogs) -> LoadedCatalog:
    """Three nodes, status 2: log_1 is written, log_2 is drained."""
    loaded = catalogs.empty(cluster='Odd "name"')
    put(loaded, settled_catalog(2))
    return loaded


def _plan(conn: Connection, node: LoadedCatalog, **options: object) -> CleanupPlan:
    catalog = read_catalog(conn, node.cluster)
    return replace(plan_cleanup(conn, catalog, confirmed_before=CUTOFF), **options)  # type: ignore[arg-type]


def _events(node: LoadedCatalog, origin: int) -> list[tuple[int, str]]:
    return [
        (seqno, kind)
        for seqno, kind in node.query(
            f"select ev_seqno, ev_type from sl_event where ev_origin = {origin} order by 1"
        )
    ]


def test_plan_counts_and_says_what_holds(node: LoadedCatalog) -> None:
    with node.connect() as conn:
        plan = _plan(conn, node)
        with node.raw() as raw:
            young = CUTOFF + timedelta(minutes=1)
            raw.execute("insert into sl_confirm values (1, 2, %s, %s)", (FIRST_SEQNO + 9, young))
        later = _plan(conn, node)

    assert plan.to_remove == {"CONFIRM": 12, "EVENT": 15, "SEQLOG": 6, "LOG_SCRIPT": 1, "NODELOCK": 1}
    assert (plan.rows, plan.rows_to_remove) == (30, 35)
    first = plan.origins[0]
    assert (first.floor, first.bound, first.oldest_sync) == (FIRST_SEQNO + 6, BOUND, BOUND)
    assert first.held == Hold("BEHIND", 2, FIRST_SEQNO + 6)
    assert later.origins[0].held == Hold("YOUNG_CONFIRMATION", 2, FIRST_SEQNO + 6)
    assert plan.log_switch.step == "FINISH"
    assert plan.hazards == ()
    assert asdict(plan)["pairs"][0] == {
        "origin": 1,
        "receiver": 2,
        "rows": 3,
        "rows_to_remove": 2,
        "keep": FIRST_SEQNO + 6,
        "newest": FIRST_SEQNO + 6,
        "aged": FIRST_SEQNO + 6,
    }


def test_active_receiver_whose_confirmations_were_deleted_keeps_every_event(node: LoadedCatalog) -> None:
    node.execute("delete from sl_confirm where con_origin = 1 and con_received = 3")
    with node.connect() as conn:
        plan = _plan(conn, node)
        clean_up(conn, plan, read_catalog(conn, node.cluster), JOB)

    assert plan.hazards == (
        Hazard("NEVER_CONFIRMED", 1, 3, 5, "node 3 never confirmed anything of origin 1"),
        Hazard(
            "FOLLOWING_NOT_CONFIRMED",
            1,
            3,
            1,
            "node 3 has not confirmed the SYNC of origin 1 that follows its DDL or values of sequences",
        ),
        Hazard(
            "LOG_NOT_CONFIRMED",
            1,
            3,
            None,
            f"origin 1 has rows in sl_log_2, and node 3 has not confirmed SYNC {FIRST_SEQNO + 1}",
        ),
    )
    assert plan.origins[0].held == Hold("NEVER_CONFIRMED", 3, None)
    assert [len(_events(node, origin)) for origin in (1, 2, 3)] == [10, 5, 5]


@pytest.mark.parametrize(
    "change",
    [
        f"delete from sl_confirm where con_origin = 1 and con_received = 2 and con_seqno > {FIRST_SEQNO}",
        "delete from sl_confirm where con_origin = 1 and con_received = 2",
        "insert into sl_node values (4, true, 'new', false)",
        f"delete from sl_event where ev_origin = 1 and ev_seqno = {BOUND}",
        f"update sl_event set ev_type = 'STORE_SET' where ev_origin = 1 and ev_seqno = {BOUND}",
    ],
)
def test_unit_whose_ground_has_gone_since_the_plan_removes_nothing(node: LoadedCatalog, change: str) -> None:
    with node.connect() as conn:
        catalog = read_catalog(conn, node.cluster)
        walk = CleanupWalk(_plan(conn, node), catalog, JOB)
        results: list[UnitResult] = []
        while (unit := walk.next_unit(conn, rows_max=2)) is not None:
            if unit.step == "EVENT" and not results:
                node.execute(change)
                before = _events(node, 1)
                results.append(run_unit(conn, unit))
                walk.note(unit, results[0])
            elif unit.step == "CONFIRM":
                run_unit(conn, unit)

    assert results == [UnitResult(0, is_held=True)]
    assert walk.held == [1]
    assert _events(node, 1) == before


def test_confirmations_that_arrive_while_units_run_change_no_bound(node: LoadedCatalog) -> None:
    def beside(conn: Connection, unit: CleanupUnit) -> UnitResult:
        node.execute(
            "insert into sl_confirm select con_origin, con_received,"
            f" least(max(con_seqno) + 1, {FIRST_SEQNO + 9}), min(con_timestamp) from sl_confirm group by 1, 2"
        )
        return run_unit(conn, unit)

    with node.connect() as conn:
        plan = _plan(conn, node)
        removed = clean_up(conn, plan, read_catalog(conn, node.cluster), JOB, rows_max=2, run=beside)

    assert removed == plan.to_remove
    assert [_events(node, origin)[0] for origin in (1, 2, 3)] == [(BOUND, "SYNC")] * 3


def test_two_cleaners_take_turns_and_leave_what_one_leaves(node: LoadedCatalog) -> None:
    with node.connect() as first, node.connect() as second:
        catalog = read_catalog(first, node.cluster)
        plan = _plan(first, node)
        walks = [CleanupWalk(plan, catalog, JOB), CleanupWalk(_plan(second, node), catalog, JOB)]
        removed = 0
        turns = [(first, walks[0]), (second, walks[1])]
        while turns:
            conn, walk = turns.pop(0)
            unit = walk.next_unit(conn, rows_max=3)
            if unit is not None:
                result = run_unit(conn, unit)
                walk.note(unit, result)
                removed += result.rows
                turns.append((conn, walk))
        with locked(first, catalog), pytest.raises(ClusterLocked):
            run_unit(second, CleanupUnit(JOB, catalog.schema, 1, "NODELOCK", (), "PROGRAM"))
        assert _plan(first, node).rows_to_remove == 0

    assert removed == plan.rows_to_remove


def test_manual_rule_removes_syncs_only_and_never_the_last(node: LoadedCatalog) -> None:
    with node.connect() as conn:
        catalog = read_catalog(conn, node.cluster)
        plan = plan_cleanup(conn, catalog, confirmed_before=CUTOFF, rule="MANUAL")
        removed = clean_up(conn, plan, catalog, JOB, rows_max=2)
        again = plan_cleanup(conn, catalog, confirmed_before=CUTOFF, rule="MANUAL")

    assert (
        removed == plan.to_remove == {"CONFIRM": 12, "EVENT": 6, "SEQLOG": 6, "LOG_SCRIPT": 1, "NODELOCK": 1}
    )
    assert _events(node, 1) == [
        (FIRST_SEQNO, "STORE_PATH"),
        (FIRST_SEQNO + 2, "STORE_PATH"),
        (FIRST_SEQNO + 4, "STORE_PATH"),
        (BOUND, "SYNC"),
        (FIRST_SEQNO + 6, "STORE_PATH"),
        (FIRST_SEQNO + 7, "SYNC"),
        (FIRST_SEQNO + 8, "STORE_PATH"),
        (FIRST_SEQNO + 9, "SYNC"),
    ]
    assert again.rows_to_remove == 0


def test_removed_events_go_to_files_that_the_manifest_names(node: LoadedCatalog, tmp_path: Path) -> None:
    before = node.query(
        f"select ev_origin, ev_seqno, ev_snapshot::text, ev_type from sl_event where ev_seqno < {BOUND}"
    )
    job = UnitJob("job-1", 1, "cleanup", archive_dir=str(tmp_path))
    with node.connect() as conn:
        assert ensure_ledger(conn)
        raise_fence(conn, "cleanup", token=1, owner="job-1")
        clean_up(conn, _plan(conn, node), read_catalog(conn, node.cluster), job, rows_max=3)
        entries = archive_manifest(conn, "job-1")
        totals = ledger_totals(conn, "job-1")

    assert [verify_file(entry).state for entry in entries] == ["OK"] * 6
    kept = []
    for entry in entries:
        columns = [column.name for column in read_shape(entry.path).columns]
        places = [columns.index(name) for name in ("ev_origin", "ev_seqno", "ev_snapshot", "ev_type")]
        kept += [tuple(row[place] for place in places) for row in read_rows(entry.path)]
    assert sorted(kept) == sorted(before)
    assert totals["EVENT"] == StepTotals(6, 15)
    assert {step: item.rows for step, item in totals.items()} == {
        "CONFIRM": 12,
        "EVENT": 15,
        "SEQLOG": 6,
        "LOG_SCRIPT": 1,
        "NODELOCK": 1,
    }


def test_unit_of_a_stale_claim_is_refused_and_a_repeated_one_counts_once(node: LoadedCatalog) -> None:
    job = UnitJob("job-1", 1, "cleanup")
    with node.connect() as conn:
        assert ensure_ledger(conn)
        raise_fence(conn, "cleanup", token=1, owner="job-1")
        walk = CleanupWalk(_plan(conn, node), read_catalog(conn, node.cluster), job)
        unit = walk.next_unit(conn)
        assert unit is not None
        done, again = run_unit(conn, unit), run_unit(conn, unit)
        assert (done, again) == (UnitResult(12), UnitResult(12, repeated=True))
        raise_fence(conn, "cleanup", token=2, owner="job-2")
        following = walk.next_unit(conn)
        assert following is not None
        with pytest.raises(FenceRaised):
            run_unit(conn, following)
    assert len(_events(node, 1)) == 10


def test_unit_does_its_work_at_a_worker_of_an_engine(node: LoadedCatalog) -> None:
    work = pickle.loads(
        pickle.dumps(cleanup_work(node.target, limits=SessionLimits(), application_name="worker"))
    )
    with node.connect() as conn:
        unit = CleanupWalk(_plan(conn, node), read_catalog(conn, node.cluster), JOB).next_unit(conn)
    with open_worker(work) as worker:
        outcome = do_unit(work, lambda: worker, pickle.loads(pickle.dumps(unit)))
    assert (outcome.result, outcome.error) == (UnitResult(12), None)


def test_single_node_never_loses_its_last_sync(node: LoadedCatalog) -> None:
    node.execute(
        "delete from sl_node where no_id <> 1",
        "delete from sl_confirm",
        "delete from sl_event where ev_origin <> 1 or ev_seqno = 5000000010",
    )
    with node.connect() as conn:
        plan = _plan(conn, node)
        clean_up(conn, plan, read_catalog(conn, node.cluster), JOB)

    assert [item.kind for item in plan.hazards] == ["LAST_SYNC"]
    assert _events(node, 1) == [(FIRST_SEQNO + 7, "SYNC"), (FIRST_SEQNO + 8, "STORE_PATH")]
    assert contents(node)["sl_log_1"] != []


def test_confirmations_of_events_that_were_never_made_count_for_nothing(node: LoadedCatalog) -> None:
    """The story: the origin was restored from a backup, and its receivers had confirmed what it made after
    that. Their confirmations came back by the listen paths: every new event counted as confirmed, and its log
    rows were emptied before anybody had them."""
    node.execute(
        "insert into sl_confirm select 1, no_id, "
        f"{FIRST_SEQNO} + 900, timestamptz '2000-01-01' from sl_node where no_id <> 1",
        "update sl_confirm set con_timestamp = '2000-01-01' where con_origin = 1",
    )
    before = _events(node, 1)
    with node.connect() as conn:
        plan = _plan(conn, node)
        [hazard] = [each for each in plan.hazards if each.kind == "NEVER_CONFIRMED"]
        assert (hazard.origin, hazard.receiver) == (1, 2)
        assert "restored from a backup" in hazard.detail
        assert plan.origins[0].bound is None
        clean_up(conn, plan, read_catalog(conn, node.cluster), JOB)
        blocked = try_finish(conn, read_catalog(conn, node.cluster))
    assert _events(node, 1) == before
    assert isinstance(blocked, Blocked)
    assert ("NOT_CONFIRMED", 2) in [(each.reason, each.receiver) for each in blocked.origins]
