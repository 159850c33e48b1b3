"""The purge of incoming batches on every kind of target: the document's rows, in units of any size."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from spark.purge.incoming import node_ranges, plan_incoming, unit_id
from spark.targets.archive.file import UNIT_ID
from spark.targets.connection import connect
from tests.oracles.symmetricds import CUTOFF, Place, Row, create, empty, load, session, snapshot
from tests.oracles.symmetricds_engines import named_place
from tests.oracles.symmetricds_incoming import expected_after
from tests.oracles.symmetricds_random_incoming import ODD_NODES, random_incoming
from tests.spark.purge.kind_run import KindRun
from tests.spark.purge.outgoing_run import target_of

OLD, YOUNG = CUTOFF - timedelta(hours=1), CUTOFF + timedelta(hours=1)


@pytest.fixture(params=["sqlite-2.x", "postgresql-3.x", "mariadb-2.x"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Empty tables."""
    found = named_place(
        request.param,
        directory=tmp_path,
        server_url=lambda dialect: str(request.getfixturevalue(f"{dialect}_url")),
    )
    create(found)
    return found


def _batch(batch_id: int, node: str = "n1", status: str | None = "OK", time: object = OLD) -> Row:
    return {"batch_id": batch_id, "node_id": node, "status": status, "create_time": time}


def _left(place: Place) -> list[tuple[int, str]]:
    return [(row["batch_id"], row["node_id"]) for row in snapshot(place)["incoming_batch"]]


def test_random_batches_go_as_the_oracle_says_and_as_planned(place: Place) -> None:
    for seed in range(12 if place.dialect == "sqlite" else 4):
        rng = Random(seed)
        empty(place)
        load(place, random_incoming(rng, place.version, place.collation))
        before = snapshot(place)
        cutoff = place.encode(CUTOFF)
        with connect(target_of(place), application_name="plan", read_only=True) as conn:
            plan = plan_incoming(conn, cutoff, lambda: False, now=cutoff)
        job = f"job_{seed:026d}"
        removed = KindRun(place, "INCOMING", cutoff, rows=rng.choice([1, 2, 7, 100]), job_id=job).run()
        assert snapshot(place) == expected_after("INCOMING", place, before, CUTOFF), f"seed {seed}"
        assert plan.rows_to_remove == removed, f"seed {seed}"
        assert plan.rows == len(before["incoming_batch"])


def test_a_range_is_of_one_node_and_tests_no_time_inside(place: Place) -> None:
    """Young, unaccepted and other nodes' batches lie between the old ones."""
    rows = [
        *(_batch(number, time=YOUNG if number == 4 else OLD) for number in range(2, 7)),
        _batch(3, "n2", time=YOUNG),
        _batch(7, time=YOUNG),
        _batch(1, time=YOUNG),
        _batch(8, status="ER"),
        _batch(9, status=None),
    ]
    load(place, {"incoming_batch": rows})
    run = KindRun(place, "INCOMING", place.encode(CUTOFF), rows=2)
    assert run.run() == 5
    assert _left(place) == [(1, "n1"), (3, "n2"), (7, "n1"), (8, "n1"), (9, "n1")]
    assert [(unit.lo, unit.hi) for unit in run.units] == [(2, 3), (4, 5), (6, 6)]


def test_a_batch_that_is_no_longer_accepted_when_its_unit_comes_stays(place: Place) -> None:
    load(place, {"incoming_batch": [_batch(number) for number in range(1, 7)]})
    run = KindRun(place, "INCOMING", place.encode(CUTOFF), rows=2)
    run.run(stop_after=1)
    with session(place) as target:
        target.run(f"update {place.name('incoming_batch')} set status = 'ER' where batch_id = 5")
    again = KindRun(place, "INCOMING", place.encode(CUTOFF), rows=2)
    assert again.run() == 3
    assert _left(place) == [(5, "n1")]


def test_names_of_any_text_make_safe_and_different_units() -> None:
    names = {unit_id(number, node, 1, 2) for number, node in enumerate(ODD_NODES, start=1)}
    assert len(names) == len(ODD_NODES)
    assert len({unit_id(1, node, 1, 2) for node in ODD_NODES}) == len(ODD_NODES)
    assert all(UNIT_ID.fullmatch(name) for name in names)


def test_nobody_old_means_nothing_to_do(place: Place) -> None:
    load(place, {"incoming_batch": [_batch(1, time=YOUNG), _batch(2, status=None), _batch(3, time=None)]})
    with connect(target_of(place), application_name="t") as conn:
        assert node_ranges(conn, place.encode(CUTOFF)) == ()
    assert KindRun(place, "INCOMING", place.encode(CUTOFF)).run() == 0
    assert len(_left(place)) == 3


def test_a_plan_names_every_awkward_row(place: Place) -> None:
    rows = [
        _batch(1),
        _batch(2, time=YOUNG),
        _batch(3, status="IG"),
        _batch(4, status=None),
        _batch(5, status="??", time=None),
        _batch(6),
    ]
    load(place, {"incoming_batch": rows})
    with connect(target_of(place), application_name="t") as conn:
        plan = plan_incoming(conn, place.encode(CUTOFF), lambda: False, now=place.encode(CUTOFF))
    assert {item.code: (item.count, item.sample) for item in plan.warnings} == {
        "BATCH_YOUNGER_IN_RANGE": (1, ()),
        "BATCH_TIME_NULL": (1, (5,)),
        "BATCH_TIME_IN_FUTURE": (1, (2,)),
        "BATCH_STATUS_NULL": (1, (4,)),
        "BATCH_STATUS_UNKNOWN": (1, (5,)),
        "BATCH_NOT_ACCEPTED": (1, (3,)),
    }
    assert (plan.nodes, plan.rows, plan.rows_to_remove) == (1, 6, 3)
