"""SymmetricDS removed inactive trigger histories by their age alone. Captured rows that had waited longer
named them still: nobody knew the columns of such a row any more, and routing failed at it for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from app.jobs.errors import PlanNoLongerHolds
from tests.oracles.ready_places import ready_place
from tests.oracles.symmetricds import CUTOFF, Place, build, create, session, snapshot
from tests.regressions.old_rows import MUST_BE_THERE, OLD_ROWS, UPKEEP, insert
from tests.regressions.purges import Purges
from tests.regressions.test_a_plan_is_not_the_act import Reviewed
from tests.spark.upkeep.upkeep_run import UpkeepRun

NEEDED = 7


@pytest.fixture(params=["sqlite-3.x", "postgresql-3.x", "mariadb-3.x"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Twenty old inactive histories."""
    with ready_place(request, request.param, tmp_path) as found:
        create(found)
        insert(found, "TRIGGER_HIST", range(1, 21))
        yield found


def capture(place: Place, history: int) -> None:
    """A row that a transaction captured long ago, and commits now."""
    with session(place) as target:
        target.run(
            f"insert into {place.name('data')}"
            " (data_id, table_name, event_type, trigger_hist_id, create_time)"
            f" values ({1_000 + history}, 't', 'U', {history}, :old)",
            {"old": place.encode(CUTOFF)},
        )


def left(place: Place) -> list[int]:
    return [row["trigger_hist_id"] for row in snapshot(place)["trigger_hist"]]


def test_row_that_is_captured_after_the_plan_keeps_its_history(place: Place) -> None:
    run = UpkeepRun(place, "TRIGGER_HIST", cast(Any, place.encode(CUTOFF)), rows=3)
    assert run.plan().rows_to_remove == 20
    capture(place, NEEDED)
    assert run.run(of_plan=True) == {"trigger_hist": 19}
    assert left(place) == [NEEDED]


def test_row_that_is_captured_between_two_units_keeps_its_history(place: Place) -> None:
    units = 0

    def before(_unit: Any) -> None:
        nonlocal units
        units += 1
        if units == 4:
            capture(place, 15)

    run = UpkeepRun(place, "TRIGGER_HIST", cast(Any, place.encode(CUTOFF)), rows=3)
    assert run.run(before=before) == {"trigger_hist": 19}
    assert left(place) == [15]
    assert [(each.code, each.count, each.sample) for each in run.plan().warnings] == [
        ("TRIGGER_HIST_STILL_NEEDED", 1, ("15",))
    ]


def test_plan_whose_histories_are_needed_again_is_refused(purges: Purges, tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db")
    create(place)
    insert(place, "TRIGGER_HIST", range(1, 21))
    purges.store(place)
    reviewed = Reviewed(purges)
    plan = reviewed.plan(kind="TRIGGER_HIST")
    capture(place, NEEDED)
    with pytest.raises(PlanNoLongerHolds):
        reviewed.submit(plan, max_drift=0)
    result = reviewed.execute(plan)
    assert (result["removed"], result["fewer_than_planned"]) == ({"trigger_hist": 19}, 1)
    assert left(place) == [NEEDED]


@pytest.mark.parametrize("kind", UPKEEP)
def test_rows_that_come_after_the_plan_stay(purges: Purges, tmp_path: Path, kind: str) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db")
    build(place, MUST_BE_THERE.get(kind, {}))
    insert(place, kind, range(1, 40, 2))
    purges.store(place)
    reviewed = Reviewed(purges)
    plan = reviewed.plan(kind=kind, stranded="REMOVE" if kind == "STRANDED" else None)
    insert(place, kind, range(2, 40, 2))
    before = snapshot(place)
    result = reviewed.execute(plan)
    [table] = OLD_ROWS[kind]
    assert (result["removed"][table], result["fewer_than_planned"]) == (20, 0)
    assert len(before[table]) - len(snapshot(place)[table]) == 20
