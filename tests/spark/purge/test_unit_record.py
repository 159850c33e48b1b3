"""A repeated unit changes and counts nothing twice; archived rows and removed rows are the same."""

from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spark.purge.statements import PurgeSpec, Step
from spark.purge.unit import UnitSpec, run_unit
from spark.targets.archive.archive import read_rows, read_shape, verify
from spark.targets.connection import connect
from spark.targets.ledger import StepTotals, archive_manifest, has_ledger, ledger_totals
from tests.oracles.symmetricds import CUTOFF, Place, build, random_database, snapshot
from tests.spark.purge.outgoing_run import OutgoingRun, target_of

STEPS: dict[Step, str] = {"DATA": "data", "EVENTS": "data_event", "BATCHES": "outgoing_batch"}


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.postgresql),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A random database of 200 captured rows."""
    if request.param == "sqlite":
        found = Place(f"sqlite:///{tmp_path}/sym.db", version="3.x")
    else:
        found = Place(request.getfixturevalue(f"{request.param}_url"), version="3.x")
    build(found, random_database(Random(11), "3.x", rows=200))
    return found


def _spec(place: Place) -> PurgeSpec:
    return PurgeSpec(CUTOFF if place.dialect == "postgresql" else str(CUTOFF))


def test_repeated_unit_reports_its_first_count_and_changes_nothing(place: Place) -> None:
    run = OutgoingRun(place, _spec(place))
    unit = run.unit("DATA", "data-1", 0, 2**40)
    with connect(run.target, application_name="t") as conn:
        run.claim(conn)
        first = run_unit(conn, unit)
        between = snapshot(place)
        again = run_unit(conn, unit)
        assert first.rows > 0
        assert (again.rows, again.repeated, first.repeated) == (first.rows, True, False)
        assert ledger_totals(conn, run.job_id) == {"DATA": StepTotals(1, first.rows)}
    assert snapshot(place) == between


def test_target_without_a_ledger_gets_none_and_loses_the_same_rows(place: Place) -> None:
    before = snapshot(place)
    totals = OutgoingRun(place, _spec(place), ledger=False).run()
    with connect(target_of(place), application_name="t") as conn:
        assert not has_ledger(conn)
    after = snapshot(place)
    for step, table in STEPS.items():
        assert totals[step] == len(before[table]) - len(after[table]) > 0
    assert not +OutgoingRun(place, _spec(place), ledger=False).run()


@pytest.mark.parametrize("ledger", [True, False])
def test_archived_rows_are_the_removed_rows(place: Place, tmp_path: Path, ledger: bool) -> None:
    directory = tmp_path / "archive"
    before = snapshot(place)
    run = OutgoingRun(place, _spec(place), rows=20, ledger=ledger, archive_dir=directory)
    run.run()
    after = snapshot(place)
    removed = {table: _keys(before[table]) - _keys(after[table]) for table in STEPS.values()}
    archived: dict[str, set[tuple[Any, ...]]] = {table: set() for table in STEPS.values()}
    for path in sorted(directory.glob("*.parquet")):
        shape = read_shape(str(path))
        names = [column.name for column in shape.columns]
        rows = [dict(zip(names, row, strict=True)) for row in read_rows(str(path))]
        archived[shape.table.removeprefix("sym_")] |= _keys(rows)
    assert archived == removed
    if ledger:
        with connect(run.target, application_name="t") as conn:
            entries = archive_manifest(conn, run.job_id)
        assert sum(entry.rows for entry in entries) == sum(map(len, removed.values()))
        assert {check.state for check in verify(entries)} == {"OK"}


def _keys(rows: list[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {tuple(row.get(name) for name in ("data_id", "batch_id", "node_id")) for row in rows}


def test_unit_travels_to_another_process_unchanged() -> None:
    unit = UnitSpec("job_1", "data-1", "DATA", 1, 9, CUTOFF - timedelta(days=1), True, 3, "OUTGOING")
    assert pickle.loads(pickle.dumps(unit)) == unit
