"""The plan counts what the run then removes, and names every awkward row."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import chain, repeat
from pathlib import Path
from random import Random

import pytest

from spark.purge.plan import OutgoingPlan, PlanStopped, plan_outgoing
from spark.purge.statements import PurgeSpec
from spark.targets.connection import connect
from tests.oracles.symmetricds import (
    CUTOFF,
    VERSIONS,
    Place,
    Rows,
    Version,
    build,
    create,
    empty,
    load,
    random_database,
    snapshot,
    stranded_batches,
)
from tests.spark.purge.outgoing_run import OutgoingRun, target_of

CASES = pytest.mark.parametrize("cases", [4, pytest.param(200, marks=pytest.mark.long)])

OLD = CUTOFF - timedelta(days=1)
YOUNG = CUTOFF + timedelta(hours=1)
NOW = CUTOFF + timedelta(hours=2)


def _plan(place: Place, spec: PurgeSpec) -> OutgoingPlan:
    now = NOW if place.dialect == "postgresql" else str(NOW)
    with connect(target_of(place), application_name="plan", read_only=True) as conn:
        return plan_outgoing(conn, spec, now=now)


def _cutoff(place: Place) -> datetime | str:
    return str(CUTOFF) if place.dialect == "sqlite" else CUTOFF


def _compare_with_run(place: Place, rng: Random) -> None:
    spec = PurgeSpec(
        _cutoff(place),
        strict=rng.random() < 0.4,
        mark_stranded=rng.random() < 0.7,
        stranded_nodes=rng.choice([None, None, ("00004", "-1")]),
    )
    before = snapshot(place)
    plan = _plan(place, spec)
    assert snapshot(place) == before
    totals = OutgoingRun(place, spec, rows=50).run()
    planned = {table.table: table.rows_to_remove for table in plan.tables}
    assert planned == {
        "sym_data": totals["DATA"],
        "sym_data_event": totals["EVENTS"],
        "sym_outgoing_batch": totals["BATCHES"],
    }
    assert [table.rows for table in plan.tables] == [
        len(before[table]) for table in ("data", "data_event", "outgoing_batch")
    ]
    found = stranded_batches(before, spec.stranded_nodes)  # type: ignore[arg-type]
    assert {item.node_id: item.batches for item in plan.stranded_nodes} == {
        node: sum(1 for _batch, other in found if other == node) for node in {node for _batch, node in found}
    }
    if spec.mark_stranded:
        assert totals["STRANDED"] == len(found)


@CASES
@pytest.mark.parametrize("version", VERSIONS)
def test_plan_of_random_sqlite_databases_counts_what_the_run_removes(
    tmp_path: Path, version: Version, cases: int
) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db", version=version)
    create(place)
    rng = Random(f"plan {version}")
    for _ in range(cases):
        empty(place)
        load(place, random_database(rng, version))
        _compare_with_run(place, rng)


@CASES
@pytest.mark.parametrize("version", VERSIONS)
def test_plan_of_random_postgresql_databases_counts_what_the_run_removes(
    postgresql_url: str, version: Version, cases: int
) -> None:
    place = Place(postgresql_url, version=version)
    create(place)
    rng = Random(f"plan {version}")
    for _ in range(cases):
        empty(place)
        load(place, random_database(rng, version))
        _compare_with_run(place, rng)


@CASES
@pytest.mark.parametrize("version", VERSIONS)
def test_plan_of_random_mariadb_databases_counts_what_the_run_removes(
    mariadb_url: str, version: Version, cases: int
) -> None:
    place = Place(mariadb_url, version=version)
    create(place)
    rng = Random(f"plan {version}")
    for _ in range(max(2, cases // 4)):
        empty(place)
        load(place, random_database(rng, version))
        _compare_with_run(place, rng)


def _awkward() -> Rows:
    """One row of each awkward kind, between ordinary ones."""
    node = {"node_group_id": "store", "external_id": "x"}
    batch = {"channel_id": "default", "create_time": OLD}
    data = {"table_name": "item", "event_type": "I", "trigger_hist_id": 1, "create_time": OLD}
    return {
        "node": [
            {**node, "node_id": "00001", "sync_enabled": 1},
            {**node, "node_id": "00002", "sync_enabled": 0},
        ],
        "data": [
            {**data, "data_id": 1},
            {**data, "data_id": 2, "create_time": None},
            {**data, "data_id": 3},  # no event
            {**data, "data_id": 4},  # waits in batch 3
            {**data, "data_id": 5, "create_time": YOUNG},  # its batch goes
            {**data, "data_id": 6, "create_time": NOW + timedelta(hours=1)},
            {**data, "data_id": 9},  # the greatest
        ],
        "data_event": [
            {"data_id": 1, "batch_id": 1, "create_time": OLD},
            {"data_id": 4, "batch_id": 3, "create_time": OLD},
            {"data_id": 5, "batch_id": 1, "create_time": OLD},
            {"data_id": 1, "batch_id": 2, "create_time": OLD},  # no batch 2
            {"data_id": 7, "batch_id": 3, "create_time": OLD},  # data 7 has gone before
            {"data_id": 1, "batch_id": 8, "create_time": OLD},
            {"data_id": 9, "batch_id": 20, "create_time": OLD},
        ],
        "outgoing_batch": [
            {**batch, "batch_id": 1, "node_id": "00001", "status": "OK"},
            {**batch, "batch_id": 3, "node_id": "00001", "status": "NE"},
            {**batch, "batch_id": 4, "node_id": "00001", "status": "OK", "create_time": YOUNG},
            {**batch, "batch_id": 5, "node_id": "00001", "status": "IG"},
            {**batch, "batch_id": 6, "node_id": "00001", "status": None, "create_time": None},
            {**batch, "batch_id": 7, "node_id": "00002", "status": "ER"},
            {**batch, "batch_id": 8, "node_id": "00001", "status": "OK"},
            {**batch, "batch_id": 8, "node_id": "00003", "status": "ZZ"},
            {
                **batch,
                "batch_id": 9,
                "node_id": "-1",
                "status": "RT",
                "create_time": NOW + timedelta(hours=1),
            },
            {**batch, "batch_id": 10, "node_id": "00001", "status": "OK"},
            {**batch, "batch_id": 20, "node_id": "00001", "status": "OK"},
        ],
    }


@pytest.mark.parametrize("mark", [True, False])
def test_plan_of_awkward_rows_warns_of_each_kind(tmp_path: Path, mark: bool) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db", version="3.x")
    build(place, _awkward())
    plan = _plan(place, PurgeSpec(str(CUTOFF), mark_stranded=mark, stranded_nodes=("00002", "-1")))
    found = {(item.code, item.table): (item.count, item.sample) for item in plan.warnings}
    data, event, batch = "sym_data", "sym_data_event", "sym_outgoing_batch"
    assert found == {
        ("DATA_TIME_NULL", data): (1, (2,)),
        ("DATA_TIME_IN_FUTURE", data): (1, (6,)),
        ("DATA_UNROUTED", data): (1, (3,)),
        ("DATA_PROTECTED", data): (2, (1, 4)),
        ("DATA_LEFT_STRANDED", data): (1, (5,)),
        ("EVENT_WITHOUT_BATCH", event): (1, (2,)),
        ("BATCH_TIME_NULL", batch): (1, (6,)),
        ("BATCH_TIME_IN_FUTURE", batch): (1, (9,)),
        ("BATCH_STATUS_NULL", batch): (1, (6,)),
        ("BATCH_STATUS_UNKNOWN", batch): (1, (8,)),
        ("BATCH_IGNORED", batch): (1, (5,)),
        **(
            {("BATCH_YOUNGER_IN_RANGE", batch): (2, (4, 9))}
            if mark
            else {("BATCH_YOUNGER_IN_RANGE", batch): (1, (4,))}
        ),
        ("BATCH_COMMON_HELD", batch): (1, (8,)),
        ("BATCH_OF_DISABLED_NODE", batch): (2, (7, 9)),
        ("BATCH_OF_UNROUTED_NODE", batch): (1, (9,)),
        ("BATCH_DATA_ALREADY_MISSING", batch): (3, (3, 7, 9)),
        ("MAX_ID_KEPT", data): (1, (9,)),
        ("MAX_ID_KEPT", batch): (1, (20,)),
    }


def test_plan_that_is_stopped_reads_no_further(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db", version="3.x")
    build(place, _awkward())
    answers = chain([False, False], repeat(True))
    with connect(target_of(place), application_name="plan") as conn, pytest.raises(PlanStopped):
        plan_outgoing(conn, PurgeSpec(str(CUTOFF)), lambda: next(answers))
