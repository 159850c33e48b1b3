"""The purge of data gaps on every kind of target, in both forms, and the form found by columns."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from spark.purge.data_gap import plan_data_gap
from spark.purge.reading.inspect import inspect
from spark.targets.connection import connect
from spark.targets.errors import TargetSchemaUnsupported
from tests.oracles.symmetricds import CUTOFF, Place, Rows, create, empty, load, session, snapshot
from tests.oracles.symmetricds_engines import named_place
from tests.oracles.symmetricds_incoming import expected_after, noted_purge
from tests.oracles.symmetricds_random_incoming import random_gaps
from tests.spark.purge.kind_run import KindRun
from tests.spark.purge.outgoing_run import target_of

OLD, YOUNG = CUTOFF - timedelta(hours=1), CUTOFF + timedelta(hours=1)


@pytest.fixture(params=["sqlite-2.x", "sqlite-3.x", "postgresql-2.x", "postgresql-3.x", "mariadb-3.x"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Empty tables."""
    found = named_place(
        request.param,
        directory=tmp_path,
        server_url=lambda dialect: str(request.getfixturevalue(f"{dialect}_url")),
    )
    create(found, loose=True)
    return found


def test_random_gaps_go_as_the_oracle_says_and_as_planned(place: Place) -> None:
    for seed in range(12 if place.dialect == "sqlite" else 3):
        rng = Random(seed)
        empty(place)
        load(place, random_gaps(rng, place.version, loose=True))
        before = snapshot(place)
        cutoff = place.encode(CUTOFF)
        with connect(target_of(place), application_name="plan", read_only=True) as conn:
            form = inspect(conn, "DATA_GAP").layout.gap_time
            assert form == ("last_update_time" if place.version == "2.x" else "create_time")
            plan = plan_data_gap(conn, form, cutoff, lambda: False, now=cutoff)
        job = f"job_{seed:026d}"
        removed = KindRun(place, "DATA_GAP", cutoff, rows=rng.choice([1, 2, 7, 100]), job_id=job).run()
        assert snapshot(place) == expected_after("DATA_GAP", place, before, CUTOFF), f"seed {seed}"
        assert (plan.rows, plan.rows_to_remove) == (len(before["data_gap"]), removed), f"seed {seed}"


def test_gaps_that_share_a_start_are_divided_between_units(place: Place) -> None:
    """The key is a pair: a unit that ends inside one start must not lose or repeat the rest of it."""
    over = {"status": "SK", "last_update_time": OLD} if place.version == "2.x" else {"is_expired": 1}
    rows = [{"start_id": 5, "end_id": end, "create_time": OLD, **over} for end in (5, 6, 7, 50, 9_000)]
    load(place, {"data_gap": rows, **_purged(place)})
    run = KindRun(place, "DATA_GAP", place.encode(CUTOFF), rows=2)
    assert run.run() == 5
    assert [(unit.lo, unit.hi) for unit in run.units] == [
        ((5, 5), (5, 6)),
        ((5, 7), (5, 50)),
        ((5, 9_000), (5, 9_000)),
    ]


def _purged(place: Place) -> Rows:
    """The program has purged beyond all gaps."""
    return {"context": noted_purge(1_000_000)} if place.version == "3.x" else {}


def test_a_gap_that_is_opened_again_when_its_unit_comes_stays(place: Place) -> None:
    over = {"status": "OK", "last_update_time": OLD} if place.version == "2.x" else {"is_expired": 1}
    rows = [{"start_id": start, "end_id": start, "create_time": OLD, **over} for start in range(1, 7)]
    load(place, {"data_gap": rows, **_purged(place)})
    run = KindRun(place, "DATA_GAP", place.encode(CUTOFF), rows=2)
    assert run.run(stop_after=1) == 2
    still_open = "status = 'GP'" if place.version == "2.x" else "is_expired = 0"
    with session(place) as target:
        target.run(f"update {place.name('data_gap')} set {still_open} where start_id = 5")
    assert KindRun(place, "DATA_GAP", place.encode(CUTOFF), rows=2).run() == 3
    assert [row["start_id"] for row in snapshot(place)["data_gap"]] == [5]


def test_columns_decide_the_form_not_the_version(tmp_path: Path) -> None:
    """3.0 to 3.8 know `context` and still have the status; a table with both has been upgraded."""
    place = Place(f"sqlite:///{tmp_path}/sym.db", "2.x")
    create(place)

    def form() -> tuple[str, str | None]:
        with connect(target_of(place), application_name="t") as conn:
            layout = inspect(conn, "DATA_GAP").layout
            return layout.version, layout.gap_time

    def run(statement: str) -> None:
        with session(place) as target:
            target.run(statement)

    assert form() == ("2.x", "last_update_time")
    run("create table sym_context (name text primary key)")
    assert form() == ("3.x", "last_update_time")
    run("alter table sym_data_gap add column is_expired integer default 0")
    assert form() == ("3.x", "create_time")
    run("alter table sym_data_gap drop column is_expired")
    run("drop index if exists sym_idx_dg_status")
    run("alter table sym_data_gap drop column status")
    with pytest.raises(TargetSchemaUnsupported, match=r"sym_data_gap has neither status .* nor is_expired"):
        form()


def test_a_plan_names_every_awkward_row(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/sym.db", "2.x")
    create(place, loose=True)
    times_and_states = [(OLD, "SK"), (YOUNG, "SK"), (None, "OK"), (OLD, None), (OLD, "GP")]
    rows = [
        {"start_id": number, "end_id": number, "create_time": OLD, "last_update_time": time, "status": status}
        for number, (time, status) in enumerate(times_and_states)
    ]
    load(place, {"data_gap": rows})
    with connect(target_of(place), application_name="t") as conn:
        cutoff = place.encode(CUTOFF)
        plan = plan_data_gap(conn, "last_update_time", cutoff, lambda: False, now=cutoff)
    assert {item.code: item.sample for item in plan.warnings} == {
        "GAP_TIME_NULL": (2,),
        "GAP_TIME_IN_FUTURE": (1,),
        "GAP_STATE_NULL": (3,),
        "GAP_STILL_OPEN": (4,),
    }
    assert plan.rows_to_remove == 1
