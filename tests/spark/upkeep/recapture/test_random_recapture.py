"""A purge that captures anew leaves of random databases what a naive model says, row for row."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from random import Random

import pytest

from spark.purge.findings import SAMPLE_MAX
from spark.purge.planned import PurgePlan
from tests.oracles.symmetricds import Place, snapshot
from tests.spark.upkeep.recapture.after import absent_keys, count_copies
from tests.spark.upkeep.recapture.case import Case, random_case
from tests.spark.upkeep.recapture.recapture_run import RecaptureRun, run_of

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("spark.upkeep.recapture") is None, reason="nothing captures anew yet"
)


def hold(place: Place, seed: int, directory: Path) -> Case:
    """One random database and its purge."""
    rng = Random(seed)
    case = random_case(place, seed)
    archive = directory / str(seed) if rng.random() < 0.5 else None
    run = run_of(place, rows=rng.choice([2, 9, 200]), archive_dir=str(archive) if archive else None)
    of_plan = rng.random() < 0.5
    case.name = f"seed {seed}, {run.rows} rows a unit{', of the plan' if of_plan else ''}"
    _check_plan(case, run.plan())
    removed = run.run(of_plan=of_plan)
    case.check()
    if run.rows >= len(case.model.stranded):  # one copy for all deletes of a key
        keys, written = absent_keys(case.model)
        assert keys <= count_copies(case.model, snapshot(place)) <= written, case.name
    gone = {"data": len(case.model.gone()), "data_event": _events_gone(case)}
    assert {step: removed.get(step, 0) for step in gone} == gone, case.name
    assert run.remaining() == _sampled(case.model.kept()), case.name
    if archive is not None:
        _check_archive(case, run)
    return case


def _events_gone(case: Case) -> int:
    return len(case.original["data_event"]) - len(case.model.before["data_event"])


def _sampled(kept: dict[str, list[int]]) -> dict[str, tuple[int, list[int]]]:
    return {code: (len(ids), ids[:SAMPLE_MAX]) for code, ids in kept.items()}


def _check_plan(case: Case, plan: PurgePlan) -> None:
    told = {
        each.code: (each.count, [int(data_id) for data_id in each.sample])
        for each in plan.warnings
        if each.code.startswith("RECAPTURE")
    }
    known = _sampled(case.model.kept(static=True))
    assert told == known, f"{case.name}: {told} of {known}"
    planned = {table.table: (table.rows, table.rows_to_remove) for table in plan.tables}
    assert planned == {
        case.ground.place.prefix + "data_event": (len(case.original["data_event"]), _events_gone(case)),
        case.ground.place.prefix + "data": (len(case.original["data"]), len(case.model.stranded)),
    }, case.name


def _check_archive(case: Case, run: RecaptureRun) -> None:
    archived = run.archived()
    gone = set(case.model.gone())
    names = sorted(case.original["data"][0]) if case.original["data"] else []
    rows = [tuple(row[name] for name in names) for row in case.original["data"] if row["data_id"] in gone]
    assert _comparable(archived.get("data", ())) == _comparable(rows), case.name
    assert len(archived.get("data_event", ())) == _events_gone(case), case.name


def _comparable(rows: Iterable[tuple[object, ...]]) -> list[list[str]]:
    """In some order; a time is a text."""
    return sorted(
        [repr(f"{value:%Y-%m-%d %H:%M:%S.%f}" if isinstance(value, datetime) else value) for value in row]
        for row in rows
    )


def _check_many(place: Place, seeds: range, directory: Path) -> None:
    verdicts: Counter[str | None] = Counter()
    for seed in seeds:
        case = hold(place, seed, directory)
        verdicts.update(verdict.code for verdict in case.model.verdicts)
    assert verdicts[None] > 2 * len(seeds), verdicts


def test_random_databases_are_left_as_the_model_says(place: Place, tmp_path: Path) -> None:
    """Sixteen over the three engines."""
    _check_many(place, range(10 if place.dialect == "sqlite" else 3), tmp_path)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_random_databases_are_left_as_the_model_says(place: Place, tmp_path: Path) -> None:
    """Six hundred over the three engines."""
    _check_many(place, range(1_000, 1_400 if place.dialect == "sqlite" else 1_100), tmp_path)
