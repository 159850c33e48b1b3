"""The smaller purges leave of random databases what the model of SymmetricDS says, row for row."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from spark.formats.symmetricds import KindName
from tests.oracles.symmetricds import CUTOFF, Place, Rows, create, empty, load, snapshot
from tests.oracles.symmetricds_engines import named_place
from tests.oracles.symmetricds_upkeep import KINDS, TABLES, expected_after_upkeep, random_upkeep
from tests.spark.upkeep.upkeep_run import UpkeepRun

GROUNDS = ("sqlite-3.x", "postgresql-3.x", "mariadb-3.x")


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.postgresql if name.startswith("postgresql") else ())
        for name in GROUNDS
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A database of 3.x on each engine, without rows."""
    found = named_place(
        request.param,
        directory=tmp_path,
        server_url=lambda dialect: str(request.getfixturevalue(f"{dialect}_url")),
    )
    create(found)
    return found


def hold(place: Place, seed: int) -> int:
    """One random database, purged by every kind, one after the other; how many rows went."""
    rng = Random(seed)
    empty(place)
    load(place, random_upkeep(rng))
    return sum(_hold_kind(place, kind, rng, seed) for kind in rng.sample(KINDS, len(KINDS)))


def _hold_kind(place: Place, kind: str, rng: Random, seed: int) -> int:
    before = snapshot(place)
    marks = kind == "CHANNELS" and rng.random() < 0.5
    expected = expected_after_upkeep(kind, place, before, CUTOFF, stranded="MARK" if marks else "SKIP")
    run = UpkeepRun(
        place,
        cast(KindName, kind),
        cast(Any, place.encode(CUTOFF)),
        rows=rng.choice([2, 9, 5_000, 5_000]),
        marks=marks,
    )
    plan = run.plan()
    went = run.run(of_plan=rng.random() < 0.5)
    assert snapshot(place) == expected, f"seed {seed}: {kind}"
    gone = _gone(kind, before, expected)
    assert {table: went.get(table, 0) for table in TABLES[kind]} == gone, f"seed {seed}: {kind}"
    planned = {each.table.removeprefix(place.prefix): each.rows_to_remove for each in plan.tables}
    assert planned == gone, f"seed {seed}: {kind}"
    assert {each.table.removeprefix(place.prefix): each.rows for each in plan.tables} == {
        table: len(before[table]) for table in TABLES[kind]
    }
    marked = [
        row
        for row, now in zip(before["outgoing_batch"], expected["outgoing_batch"], strict=False)
        if row != now
    ]
    if kind == "CHANNELS":
        assert went.get("mark_outgoing_batch", 0) == plan.marked == len(marked), f"seed {seed}"
    return sum(gone.values())


def _gone(kind: str, before: Rows, after: Rows) -> dict[str, int]:
    return {table: len(before[table]) - len(after[table]) for table in TABLES[kind]}


def test_random_databases_are_left_as_the_model_says(place: Place) -> None:
    """Twenty-eight over the three engines, each purged by all seven kinds."""
    seeds = range(20 if place.dialect == "sqlite" else 4)
    assert sum(hold(place, seed) for seed in seeds) > 5 * len(seeds)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_random_databases_are_left_as_the_model_says(place: Place) -> None:
    """A thousand over the three engines."""
    for seed in range(10_000, 10_600 if place.dialect == "sqlite" else 10_200):
        hold(place, seed)
