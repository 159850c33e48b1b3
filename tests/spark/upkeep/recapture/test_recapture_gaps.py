"""A row that came into a gap when it had expired is never routed: it is captured anew, and no other."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from tests.oracles.symmetricds import CUTOFF, Place, load, snapshot
from tests.oracles.symmetricds_incoming import noted_purge
from tests.spark.purge.kind_run import KindRun
from tests.spark.upkeep.recapture.ground import LOWEST_BATCH, OLD, Ground, insert, make
from tests.spark.upkeep.recapture.hands import hand
from tests.spark.upkeep.recapture.recapture_run import RecaptureRun, run_of
from tests.spark.upkeep.recapture.shapes import ITEM
from tests.spark.upkeep.recapture.stranding import strand
from tests.spark.upkeep.recapture.triggers import Capture
from tests.spark.upkeep.upkeep_run import UpkeepRun

ROWS = 7
LATE, ROUTED, YOUNG, ABOVE = 1, 2, 3, 5


def _route(place: Place, data_id: int) -> None:
    load(place, {"data_event": [{"data_id": data_id, "batch_id": LOWEST_BATCH, "create_time": OLD}]})


@pytest.fixture
def ground(place: Place) -> Ground:
    """Seven captured rows; those from the second to the fourth and the sixth lie in expired gaps.

    The first has an event, as has the third; the fourth is young; the sixth is behind the first live gap.
    """
    found = make(place, [ITEM], [Capture("t", 1, ITEM, ITEM.names, ITEM.key)])
    with hand(place) as worker:
        for key in range(ROWS):
            insert(worker, ITEM, {"id": key, "name": "n", "price": Decimal("1.5")})
    ids = sorted(row["data_id"] for row in snapshot(place)["data"])
    strand(found, ids[0])
    _route(place, ids[ROUTED])
    gaps = [
        {"start_id": ids[first], "end_id": ids[last], "is_expired": expired, "create_time": OLD}
        for first, last, expired in ((LATE, YOUNG, 1), (ABOVE, ABOVE, 1), (4, 4, 0))
    ]
    load(place, {"data_gap": gaps})
    with hand(place) as worker:
        young = f"select create_time from {place.name('data_gap')} where start_id > {ids[-1]}"  # the cut-off
        worker.run(f"update {place.name('data')} set create_time = ({young}) where data_id = {ids[YOUNG]}")
    return found


def _ids(ground: Ground) -> list[int]:
    return sorted(ground.captured)


def _gone(ground: Ground) -> list[int]:
    """The places of the rows that are not there any more."""
    there = {row["data_id"] for row in snapshot(ground.place)["data"]}
    return [place for place, data_id in enumerate(_ids(ground)) if data_id not in there]


def _new(ground: Ground) -> list[dict[str, Any]]:
    return [row for row in snapshot(ground.place)["data"] if row["data_id"] > _ids(ground)[-1]]


def _gap_starts(ground: Ground) -> set[int]:
    return {row["start_id"] for row in snapshot(ground.place)["data_gap"]}


def _purge(ground: Ground) -> RecaptureRun:
    run = run_of(ground.place)
    run.plan()
    return run


@pytest.mark.parametrize("of_plan", [False, True])
def test_a_late_row_is_captured_anew(ground: Ground, of_plan: bool) -> None:
    run = _purge(ground)
    assert [key[0][2:] for key in run.planned["data"]] == [str(_ids(ground)[LATE])]
    assert run.run(of_plan=of_plan)["data"] == 1
    assert _gone(ground) == [LATE]
    [row] = _new(ground)
    assert (row["event_type"], row["pk_data"]) == ("U", '"1"')
    assert run.remaining() == {}


def test_the_next_purge_of_gaps_takes_the_gap(ground: Ground) -> None:
    load(ground.place, {"context": noted_purge(_ids(ground)[-1])})
    gaps = KindRun(ground.place, "DATA_GAP", ground.place.encode(CUTOFF))
    with hand(ground.place) as worker:  # it holds one late row, and none that is young
        at = f"where start_id = {_ids(ground)[LATE]}"
        worker.run(f"update {ground.place.name('data_gap')} set end_id = {_ids(ground)[ROUTED]} {at}")
    gaps.run()
    assert _ids(ground)[LATE] in _gap_starts(ground)
    assert _purge(ground).run()["data"] == 1
    replace(gaps, job_id="job_01ABCDEFGHJKMNPQRSTVWXYZ02", units=[]).run()
    assert _ids(ground)[LATE] not in _gap_starts(ground)


def test_a_row_that_is_routed_behind_the_plan_stays(ground: Ground) -> None:
    run = _purge(ground)
    _route(ground.place, _ids(ground)[LATE])
    assert run.run(of_plan=True).get("data", 0) == 0
    assert (_gone(ground), _new(ground)) == ([], [])


def test_a_row_whose_capture_cannot_be_read_keeps_its_gap(ground: Ground) -> None:
    late = _ids(ground)[LATE]
    with hand(ground.place) as worker:
        worker.run(f"update {ground.place.name('data')} set row_data = null where data_id = {late}")
    run = _purge(ground)
    assert run.run().get("data", 0) == 0
    assert (_gone(ground), _new(ground)) == ([], [])
    assert run.remaining() == {"RECAPTURE_KEY_UNREADABLE": (1, [late])}


def test_the_greatest_row_waits_until_another_is_captured(ground: Ground) -> None:
    """Without it SQLite would give its id again."""
    ids, data = _ids(ground), ground.place.name("data")
    greatest, gap = ids[-1], ground.place.name("data_gap")
    with hand(ground.place) as worker:
        worker.run(f"delete from {gap} where is_expired = 0")
        here = f"start_id = {greatest}, end_id = {greatest}"
        worker.run(f"update {gap} set {here} where start_id = {ids[ABOVE]}")
        worker.run(f"update {data} set is_prerouted = 1 where data_id = {ids[LATE]}")
    live = {"start_id": greatest + 1, "end_id": greatest + 50_000, "is_expired": 0, "create_time": OLD}
    load(ground.place, {"data_gap": [live]})
    assert _purge(ground).run().get("data", 0) == 0
    with hand(ground.place) as worker:
        insert(worker, ITEM, {"id": ROWS, "name": "n", "price": Decimal("1.5")})
        worker.run(f"update {gap} set start_id = start_id + 9 where is_expired = 0")
    assert _purge(ground).run()["data"] == 1
    assert _gone(ground) == [ROWS - 1]
    assert [row["event_type"] for row in _new(ground)] == ["I", "U"]


def test_without_recapture_it_stays(ground: Ground) -> None:
    """Whoever removes stranded rows has not said that late ones may be lost."""
    run = UpkeepRun(ground.place, "STRANDED", ground.place.encode(CUTOFF))
    run.plan()
    assert run.planned.get("data", []) == []
    assert run.run().get("data", 0) == 0
    assert _gone(ground) == []
