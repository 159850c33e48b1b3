"""What a purge will look at, told before it begins: exact where it is little, near where it is much."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from spark.purge import forecast
from spark.purge.forecast import reach_of_steps
from spark.purge.ranges import next_ranges, step_bounds
from spark.purge.statements import STEPS, PurgeSpec
from spark.targets.connection import connect
from tests.oracles.symmetricds import CUTOFF, Place, build, create, empty, load, random_database
from tests.oracles.symmetricds_engines import PLACES, named_place
from tests.spark.purge.outgoing_run import target_of

OLD, YOUNG = CUTOFF - timedelta(days=1), CUTOFF + timedelta(days=1)
SPEC = PurgeSpec(str(CUTOFF), mark_stranded=False)
DATA = {"table_name": "item", "event_type": "I", "trigger_hist_id": 1}


@pytest.mark.parametrize("where", PLACES)
def test_small_database_is_counted_exactly(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = named_place(
        where, directory=tmp_path, server_url=lambda dialect: request.getfixturevalue(f"{dialect}_url")
    )
    create(place)
    for seed in range(4):
        empty(place)
        load(place, random_database(Random(seed), place.version))
        with connect(target_of(place), application_name="t") as conn:
            cutoff = str(CUTOFF) if place.dialect == "sqlite" else CUTOFF
            spec = PurgeSpec(cutoff, mark_stranded=False)
            found = reach_of_steps(conn, spec)
            assert list(found) == list(STEPS[1:])
            for step in STEPS[1:]:
                bounds = step_bounds(conn, step, spec)
                walked = 0
                if bounds is not None:
                    pieces = next_ranges(
                        conn, step, spec, after=bounds[0] - 1, upto=bounds[1], rows=1_000, count=1_000
                    )
                    walked = sum(piece.rows for piece in pieces)
                assert found[step][0] == walked, (step, seed)
                assert found[step][1] <= found[step][0]


def _database(place: Place, rows: int, old: int) -> None:
    build(
        place,
        {
            "data": [
                {**DATA, "data_id": 10 + number, "create_time": OLD if number < old else YOUNG}
                for number in range(rows)
            ]
        },
    )


def test_old_rows_are_told_from_young_ones_by_a_few_looks(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db")
    _database(place, 4_001, 1_200)
    with connect(target_of(place), application_name="t") as conn:
        rows, old = reach_of_steps(conn, SPEC)["DATA"]
    assert rows == 4_000
    assert old == pytest.approx(1_200, abs=200)


def test_what_lies_behind_the_counted_rows_is_taken_to_lie_as_densely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "COUNTED", 500)
    place = Place(f"sqlite:///{tmp_path}/sym.db")
    _database(place, 4_001, 4_001)
    with connect(target_of(place), application_name="t") as conn:
        assert reach_of_steps(conn, SPEC)["DATA"] == (4_000, 4_000)


def test_empty_tables_reach_nothing(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db")
    build(place, {})
    with connect(target_of(place), application_name="t") as conn:
        assert reach_of_steps(conn, PurgeSpec(str(CUTOFF))) == dict.fromkeys(STEPS, (0, 0))
