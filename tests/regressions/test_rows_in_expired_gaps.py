"""A transaction ran for longer than routing waits. Its row came into a gap that had expired meanwhile, was
never routed, and stood there until the purge of SymmetricDS would find the gap and capture the row again.
Lethe's purge DATA_GAP was first: it took every expired gap that was old enough, and the next purge of the
program deleted the row by a range of ids, delivered to nobody, captured by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from spark.purge.data_gap import plan_data_gap, run_data_gap
from spark.targets.connection import connect
from tests.oracles.ready_places import ready_place
from tests.oracles.symmetricds import CUTOFF, Place, Row, Rows, create, empty, load, session, snapshot
from tests.oracles.symmetricds_incoming import noted_purge
from tests.oracles.symmetricds_program import Program, kept_rows
from tests.oracles.symmetricds_random import random_time
from tests.spark.purge.kind_run import KindRun
from tests.spark.purge.outgoing_run import target_of

OLD = CUTOFF - timedelta(hours=2)
HISTORY: Row = {"table_name": "item", "event_type": "I", "trigger_hist_id": 1}
Purging = Callable[[Place, int, Random], int]
ENGINES = ["sqlite-3.x", "postgresql-3.x", "mariadb-3.x"]


@pytest.fixture(params=ENGINES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Empty tables of 3.16."""
    with ready_place(request, request.param, tmp_path) as found:
        create(found)
        yield found


def _random(rng: Random) -> tuple[Rows, list[tuple[int, int]]]:
    """Routed rows with expired gaps between them and the live gap behind; and the expired gaps."""
    data, events, gaps, batches = [], [], [], []
    data_id, batch_id = rng.choice([1, 1, 500]), 1
    for _ in range(rng.randrange(2, 9)):
        about = CUTOFF + timedelta(hours=rng.uniform(-30, 2))
        for _ in range(rng.randrange(1, 6)):
            data.append({"data_id": data_id, "create_time": about, **HISTORY})
            events.append({"data_id": data_id, "batch_id": batch_id, "create_time": about})
            data_id += 1
        status = rng.choice(["OK"] * 7 + ["NE", "ER"])
        channel = rng.choice(["a", "b"])
        batches.append(
            {
                "batch_id": batch_id,
                "node_id": "n1",
                "status": status,
                "channel_id": channel,
                "create_time": about,
            }
        )
        batch_id += 1
        if rng.random() < 0.7:
            width = rng.randrange(1, 5)
            made = random_time(rng, CUTOFF + timedelta(hours=rng.uniform(-30, 0.5))) or OLD
            gaps.append(
                {"start_id": data_id, "end_id": data_id + width - 1, "is_expired": 1, "create_time": made}
            )
            data_id += width
    live = {"start_id": data_id, "end_id": data_id + 50_000_000, "is_expired": 0, "create_time": CUTOFF}
    expired = [(int(gap["start_id"]), int(gap["end_id"])) for gap in gaps]
    cursor = rng.choice([0, data_id, *(end for key in expired for end in key), rng.randrange(1, data_id)])
    rows = {"data": data, "data_event": events, "outgoing_batch": batches, "data_gap": [*gaps, live]}
    return {**rows, "context": noted_purge(cursor) if cursor else []}, expired


def _come_late(place: Place, rng: Random, gaps: list[tuple[int, int]], known: set[int]) -> None:
    """Commit a row or two into expired gaps."""
    for start, end in rng.sample(gaps, min(len(gaps), rng.choice([0, 1, 2]))):
        data_id = rng.randrange(start, end + 1)
        if data_id not in known:
            known.add(data_id)
            load(place, {"data": [{"data_id": data_id, "create_time": OLD, **HISTORY}]})


def _purge(place: Place, seed: int, rng: Random) -> int:
    job = f"job_{seed:026d}"
    return KindRun(place, "DATA_GAP", place.encode(CUTOFF), rows=rng.choice([1, 3, 100]), job_id=job).run()


def _purge_as_it_was(place: Place, _seed: int, _rng: Random) -> int:
    """Every expired gap that is old enough."""
    with session(place) as target:
        delete = f"delete from {place.name('data_gap')} where is_expired = 1 and create_time < :cutoff"
        return target.count(delete, {"cutoff": place.encode(CUTOFF)})


def _no_purge(_place: Place, _seed: int, _rng: Random) -> int:
    return 0


def _lost(place: Place, seed: int, purge: Purging) -> tuple[set[int], int]:
    """Late rows that nobody has any more after our purge and two of the program; gaps that we removed."""
    rng = Random(seed)
    rows, gaps = _random(rng)
    empty(place)
    load(place, rows)
    late: set[int] = set()
    for _ in range(2):
        _come_late(place, rng, gaps, late)
    removed = purge(place, seed, rng)
    if rows["context"]:  # where the program has noted nothing, only what is proved closed has gone
        _come_late(place, rng, gaps, late)
    program = Program(place, in_tx=rng.choice([1, 3, 5_000]))
    program.purge(CUTOFF, CUTOFF)
    _come_late(place, rng, [gap for gap in gaps if rows["context"]], late)
    program.purge(CUTOFF + timedelta(hours=3), CUTOFF)
    return late - kept_rows(place), removed


def _all_lost(place: Place, seeds: range, purge: Purging = _purge) -> tuple[dict[int, set[int]], int]:
    found, removed = {}, 0
    for seed in seeds:
        lost, gone = _lost(place, seed, purge)
        removed += gone
        if lost:
            found[seed] = lost
    return found, removed


def test_no_late_row_is_lost_after_the_program_has_purged_too(place: Place) -> None:
    lost, removed = _all_lost(place, range(40 if place.dialect == "sqlite" else 4))
    assert not lost
    assert removed > 0


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_no_late_row_is_lost_in_a_thousand_databases(place: Place) -> None:
    lost, removed = _all_lost(place, range(1_000, 2_000 if place.dialect == "sqlite" else 1_100))
    assert not lost
    assert removed > 0


@pytest.mark.parametrize("place", ["sqlite-3.x"], indirect=True)
def test_the_judge_sees_what_the_rule_of_before_lost(place: Place) -> None:
    lost, _removed = _all_lost(place, range(40), _purge_as_it_was)
    assert lost


@pytest.mark.parametrize("place", ["sqlite-3.x"], indirect=True)
def test_the_judge_finds_the_program_alone_without_loss(place: Place) -> None:
    assert _all_lost(place, range(40), _no_purge) == ({}, 0)


def _gaps(place: Place) -> list[int]:
    return [row["start_id"] for row in snapshot(place)["data_gap"]]


def _some_gaps(place: Place, *, purged: int | None) -> None:
    gaps = [
        {"start_id": start, "end_id": start + 4, "is_expired": 1, "create_time": OLD}
        for start in (10, 20, 30, 40)
    ]
    captured = [{"data_id": data_id, "create_time": OLD, **HISTORY} for data_id in (5, 22, 33, 50)]
    events = [{"data_id": data_id, "batch_id": 1, "create_time": OLD} for data_id in (5, 33, 50)]
    batches = [{"batch_id": 1, "node_id": "n1", "status": "OK", "create_time": OLD}]
    noted = [] if purged is None else noted_purge(purged)
    rows = {"data_gap": gaps, "data": captured, "data_event": events, "outgoing_batch": batches}
    load(place, {**rows, "context": noted})


def test_a_plan_names_the_gaps_that_stay(place: Place) -> None:
    _some_gaps(place, purged=40)
    with connect(target_of(place), application_name="plan", read_only=True) as conn:
        cutoff = place.encode(CUTOFF)
        plan = plan_data_gap(conn, "create_time", cutoff, lambda: False, now=cutoff)
    found = {item.code: (item.count, item.sample) for item in plan.warnings}
    assert found == {"GAP_HOLDS_UNROUTED_ROWS": (1, (20,)), "GAP_NOT_BELOW_PURGED_ID": (1, (40,))}
    assert plan.rows_to_remove == 2
    assert KindRun(place, "DATA_GAP", place.encode(CUTOFF)).run() == 2
    assert _gaps(place) == [20, 40]


def test_a_row_that_comes_between_plan_and_act_keeps_its_gap(place: Place) -> None:
    """The unit looks again, in its own transaction."""
    _some_gaps(place, purged=100)
    whole = KindRun(place, "DATA_GAP", place.encode(CUTOFF))
    with closing(connect(target_of(place), application_name="test")) as conn:
        walk, make, _run = whole._parts(conn)
        [piece] = whole._pieces(conn, walk)
    load(place, {"data": [{"data_id": 12, "create_time": OLD, **HISTORY}]})
    with closing(connect(target_of(place), application_name="test")) as conn:
        unit = replace(make(piece), has_ledger=False)
        assert run_data_gap(conn, unit).rows == 2
    assert _gaps(place) == [10, 20]


@pytest.mark.parametrize("place", ["postgresql-3.x", "mariadb-3.x"], indirect=True)
def test_without_a_note_of_the_program_an_open_transaction_keeps_the_gap(place: Place) -> None:
    """It may hold an id of the gap; on MariaDB nobody tells, so all stay."""
    with session(place) as writer:
        writer.run("begin")
        writer.run(
            f"insert into {place.name('data')}"
            " (data_id, table_name, event_type, trigger_hist_id, create_time)"
            " values (11, 'item', 'I', 1, :old)",
            {"old": OLD},
        )
        _some_gaps(place, purged=None)
        assert KindRun(place, "DATA_GAP", place.encode(CUTOFF)).run() == 0
        writer.run("commit")
    assert _gaps(place) == [10, 20, 30, 40]
