"""An operator reviewed a plan of 3,347 rows and executed it by `plan_id`. Batches were acknowledged in
between, and 3,397 rows went, without a word: only the cut-off and the names of stranded nodes came from the
plan. Fifty rows that nobody had reviewed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.auth.service import Caller
from app.jobs.errors import PlanNoLongerHolds
from app.jobs.plans.plans import submit_plan
from app.jobs.rows import Job
from app.purge.models import PurgeRequest
from app.purge.purging import looked
from app.purge.service import prepare, snapshot
from app.stores.rows import Store
from app.sweeps.purging import submit_looked
from tests.oracles.ready_places import ready_place
from tests.oracles.symmetricds import (
    CUTOFF,
    Place,
    Row,
    Rows,
    create,
    empty,
    expected_after_purge,
    load,
    random_database,
    session,
)
from tests.oracles.symmetricds import snapshot as rows_of
from tests.oracles.symmetricds_incoming import expected_after, noted_purge
from tests.oracles.symmetricds_random_incoming import random_gaps, random_incoming
from tests.regressions.purges import OLD_CUTOFF, Purges

OLD = CUTOFF - timedelta(hours=3)
KEYS = {
    "data": ("data_id",),
    "data_event": ("data_id", "batch_id", "router_id"),
    "outgoing_batch": ("batch_id", "node_id"),
    "incoming_batch": ("batch_id", "node_id"),
    "data_gap": ("start_id", "end_id"),
}
TABLES = {"OUTGOING": ("data", "data_event", "outgoing_batch")} | {
    "INCOMING": ("incoming_batch",),
    "DATA_GAP": ("data_gap",),
}


@pytest.fixture(params=["sqlite-3.x", "sqlite-2.x", "postgresql-3.x", "mariadb-3.x"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Empty tables."""
    with ready_place(request, request.param, tmp_path) as found:
        create(found)
        yield found


@dataclass
class Reviewed:
    """Plans and their executions, by the runner of this process."""

    purges: Purges

    def plan(self, **fields: Any) -> Job:
        request = PurgeRequest.model_validate(
            {"kind": "OUTGOING", "force": True, "cutoff": OLD_CUTOFF} | fields
        )
        bench = self.purges.bench
        with bench.database.transaction() as db:
            store = db.get_one(Store, "shop")
            params = snapshot(db, store, request, None)
            caller = _caller()
            job_id = submit_plan(
                db, store, params, caller=caller, settings=bench.settings, now=bench.clock.now()
            ).id
        job = self.purges.run(job_id)
        assert job.state == "SUCCEEDED", job.error
        return job

    def submit(self, plan: Job, **fields: Any) -> str:
        """As the route does it, its look at the target included."""
        bench = self.purges.bench
        kind = plan.params["kind"]
        request = PurgeRequest.model_validate({"kind": kind, "force": True, "plan_id": plan.id} | fields)
        with bench.database.reading() as db:
            store = db.get_one(Store, "shop")
        params, look = prepare(
            bench.database, store, request, settings=bench.settings, now=bench.clock.now(), for_write=True
        )
        with bench.database.transaction() as db:
            return submit_looked(
                db,
                db.get_one(Store, "shop"),
                looked(store, params, look),
                caller=_caller(),
                reason=None,
                settings=bench.settings,
                now=bench.clock.now(),
            ).id

    def execute(self, plan: Job, **fields: Any) -> dict[str, Any]:
        job = self.purges.run(self.submit(plan, **fields))
        assert job.state == "SUCCEEDED", job.error
        assert job.result is not None
        return job.result


def _caller() -> Caller:
    return Caller(name="ann", token_id="tok_ann", scopes=frozenset(), stores=None)


@pytest.fixture
def reviewed(purges: Purges, place: Place) -> Reviewed:
    purges.store(place)
    return Reviewed(purges)


def _keys(rows: Rows, kind: str) -> set[tuple[Any, ...]]:
    return {
        (table, *(row[name] for name in KEYS[table] if name in row))
        for table in TABLES[kind]
        for row in rows[table]
    }


def _by_oracle(place: Place, rows: Rows, kind: str, **options: Any) -> Rows:
    if kind == "OUTGOING":
        return expected_after_purge(rows, place.encode(CUTOFF), collation=place.collation, **options)
    return expected_after(kind, place, rows, CUTOFF)


def _made(rng: Random, place: Place, kind: str) -> Rows:
    if kind == "OUTGOING":
        return random_database(rng, place.version, rows=60)
    if kind == "INCOMING":
        return random_incoming(rng, place.version, place.collation)
    rows = random_gaps(rng, place.version, loose=False)
    return rows | ({"context": noted_purge(2**40)} if place.version == "3.x" else {})


def _disturb(place: Place, rng: Random, kind: str) -> None:
    """What goes on at a target between a review and the act, and some things that never should."""
    name = place.name
    acts: dict[str, list[str]] = {
        "OUTGOING": [
            f"update {name('outgoing_batch')} set status = 'OK' where batch_id % {rng.randrange(1, 4)} = 0",
            f"update {name('outgoing_batch')} set status = 'NE' where batch_id % 5 = {rng.randrange(5)}",
            f"update {name('outgoing_batch')} set status = 'OK', create_time = :old where status <> 'OK'",
            f"update {name('data')} set create_time = :old where data_id % 3 = {rng.randrange(3)}",
            f"update {name('node')} set sync_enabled = 1",
            f"delete from {name('data_event')} where batch_id % 4 = {rng.randrange(4)}",
            f"delete from {name('data')} where data_id % 6 = {rng.randrange(6)}",
        ],
        "INCOMING": [
            f"update {name('incoming_batch')} set status = 'OK' where batch_id % {rng.randrange(1, 4)} = 0",
            f"update {name('incoming_batch')} set create_time = :old where batch_id % 2 = 0",
            f"update {name('incoming_batch')} set status = 'ER' where batch_id % 5 = {rng.randrange(5)}",
        ],
        "DATA_GAP": [
            f"update {name('data_gap')} set create_time = :old where start_id % 2 = 0",
            f"update {name('data_gap')} set "
            + ("is_expired = 1" if place.version == "3.x" else "status = 'OK', last_update_time = :old"),
            f"delete from {name('data_gap')} where start_id % 7 = {rng.randrange(7)}",
        ],
    }
    with session(place) as target:
        for statement in rng.sample(acts[kind], rng.randrange(1, len(acts[kind]) + 1)):
            if place.dialect != "sqlite":
                statement = statement.replace("%", "%%")
            target.run(statement, {"old": place.encode(OLD)} if ":old" in statement else None)
        if kind == "OUTGOING":
            for row in _routed_since(rng, target.run(f"select max(data_id) from {name('data')}")[0][0] or 0):
                _insert(place, *row)


def _routed_since(rng: Random, top: int) -> list[tuple[str, Row]]:
    """Rows captured and routed since, some with old times and ids in between."""
    found: list[tuple[str, Row]] = []
    like = {"table_name": "item", "event_type": "I", "trigger_hist_id": 1, "create_time": OLD}
    for number in range(rng.randrange(0, 6)):
        data_id, batch_id = top + 1 + number, 900_000 + number
        found += [
            ("data", {"data_id": data_id, **like}),
            ("data_event", {"data_id": data_id, "batch_id": batch_id, "create_time": OLD}),
            ("outgoing_batch", {"batch_id": batch_id, "node_id": "n1", "status": "OK", "create_time": OLD}),
        ]
    return found


def _insert(place: Place, table: str, row: Row) -> None:
    if place.version == "2.x" and table == "data_event":
        row = {**row, "router_id": "r"}
    load(place, {table: [row]})


def _attack(reviewed: Reviewed, place: Place, kind: str, seed: int) -> tuple[int, int]:
    """Plan, disturb, execute; returns rows planned and gone."""
    rng = Random(seed)
    empty(place)
    load(place, _made(rng, place, kind))
    seen = rows_of(place)
    options = {"stranded": rng.choice(["MARK", "SKIP"])} if kind == "OUTGOING" else {}
    plan = reviewed.plan(kind=kind, **options)
    assert plan.result is not None
    planned = _keys(seen, kind) - _keys(_by_oracle(place, seen, kind, **options), kind)
    assert sum(table["rows_to_remove"] for table in plan.result["tables"]) == len(planned), f"seed {seed}"
    job_id = reviewed.submit(plan, max_rows_in_tx=rng.choice([1, 7, 5_000]))
    _disturb(place, rng, kind)
    before = rows_of(place)
    job = reviewed.purges.run(job_id)
    assert job.state == "SUCCEEDED", (seed, job.error)
    assert job.result is not None
    gone = _keys(before, kind) - _keys(rows_of(place), kind)
    assert gone <= planned, f"seed {seed}: {sorted(gone - planned)[:5]}"
    assert sum(job.result["removed"].values()) == len(gone), f"seed {seed}"
    assert sum(job.result["planned"].values()) == len(planned), f"seed {seed}"
    assert job.result["fewer_than_planned"] == len(planned) - len(gone)
    if kind == "OUTGOING":
        _assert_nothing_waited_for(before, gone, seed)
    return len(planned), len(gone)


def _assert_nothing_waited_for(before: Rows, gone: set[tuple[Any, ...]], seed: int) -> None:
    """Of what is gone nothing was in a batch that somebody still waited for; marked ones are in the plan."""
    waiting = {
        row["batch_id"]
        for row in before["outgoing_batch"]
        if row["status"] not in ("OK", "IG", None)
        and ("outgoing_batch", row["batch_id"], row["node_id"]) not in gone
    }
    needed = {event["data_id"] for event in before["data_event"] if event["batch_id"] in waiting}
    marked = {key[1] for key in gone if key[0] == "outgoing_batch"}
    lost = {key for key in gone if key[0] == "data" and key[1] in needed}
    assert not lost or marked, f"seed {seed}: {sorted(lost)[:5]}"


KINDS = ["OUTGOING", "INCOMING", "DATA_GAP"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_row_beyond_the_plan_ever_goes(reviewed: Reviewed, place: Place, kind: str) -> None:
    seeds = range(2 if place.dialect == "sqlite" else 1)
    found = [_attack(reviewed, place, kind, seed) for seed in seeds]
    assert sum(planned for planned, _gone in found) > 0 or len(seeds) == 1


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_no_row_beyond_the_plan_goes_in_many_histories(reviewed: Reviewed, place: Place, kind: str) -> None:
    found = [_attack(reviewed, place, kind, seed) for seed in range(1_000, 1_100)]
    assert sum(gone for _planned, gone in found) > 100


@pytest.mark.parametrize("place", ["sqlite-3.x"], indirect=True)
def test_what_is_acknowledged_after_the_plan_stays_for_the_next(reviewed: Reviewed, place: Place) -> None:
    load(place, random_database(Random(3), place.version, rows=200))
    plan = reviewed.plan()
    assert plan.result is not None
    with session(place) as target:
        target.run(f"update {place.name('outgoing_batch')} set status = 'OK'")
    result = reviewed.execute(plan)
    planned = {
        table["table"].removeprefix("sym_"): table["rows_to_remove"] for table in plan.result["tables"]
    }
    assert result["removed"] == result["planned"] == planned
    assert result["fewer_than_planned"] == 0
    more = reviewed.execute(reviewed.plan())
    assert sum(more["removed"].values()) > 0


@pytest.mark.parametrize("place", ["sqlite-3.x"], indirect=True)
@pytest.mark.parametrize(("max_drift", "holds"), [(0, False), (0.01, False), (100_000, True), (0.99, True)])
def test_fewer_rows_than_max_drift_allows_are_412(
    reviewed: Reviewed, place: Place, max_drift: float, holds: bool
) -> None:
    load(place, random_database(Random(3), place.version, rows=200))
    plan = reviewed.plan()
    with session(place) as target:
        target.run(f"update {place.name('outgoing_batch')} set status = 'RS' where batch_id % 2 = 0")
    before = rows_of(place)
    if holds:
        assert reviewed.execute(plan, max_drift=max_drift)["fewer_than_planned"] > 0
        return
    with pytest.raises(PlanNoLongerHolds, match=r"rows were reviewed, .* fewer, and max_drift allows"):
        reviewed.submit(plan, max_drift=max_drift)
    assert rows_of(place) == before


@pytest.mark.parametrize("place", ["sqlite-3.x"], indirect=True)
def test_the_job_looks_once_more_before_its_first_unit(reviewed: Reviewed, place: Place) -> None:
    load(place, random_database(Random(3), place.version, rows=200))
    job_id = reviewed.submit(reviewed.plan(), max_drift=0)
    with session(place) as target:
        target.run(f"update {place.name('outgoing_batch')} set status = 'RS' where batch_id % 2 = 0")
    before = rows_of(place)
    job = reviewed.purges.run(job_id)
    assert job.error is not None
    assert job.error["code"] == "PLAN_NO_LONGER_HOLDS"
    assert "max_drift allows 0" in job.error["detail"]
    assert rows_of(place) == before


@pytest.mark.parametrize("place", ["sqlite-3.x"], indirect=True)
def test_a_plan_of_the_version_before_is_made_again(reviewed: Reviewed, place: Place) -> None:
    """It kept no rows."""
    load(place, random_database(Random(3), place.version, rows=50))
    plan = reviewed.plan()
    with session(place) as target:
        before = target.run(f"select count(*) from {place.name('data')}")
    with reviewed.purges.bench.database.transaction() as db:
        db.connection().exec_driver_sql("delete from job_checkpoints")
    with pytest.raises(PlanNoLongerHolds, match="plan again"):
        reviewed.submit(plan)
    with session(place) as target:
        assert target.run(f"select count(*) from {place.name('data')}") == before
