"""facts/locks.md: a resend that committed before the unit's lock keeps its rows, a later one waits for the
unit.

Story: without the lock, a resend that committed in the middle of the delete lost its 101 rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy.engine import make_url

from spark.purge.statements import PurgeSpec, Step
from spark.purge.unit import UnitResult, UnitSpec, run_unit
from spark.targets.connection import connect
from spark.targets.errors import FenceRaised, TargetLockTimeout
from spark.targets.fence import raise_fence
from tests.oracles.symmetricds import CUTOFF, Place, build, snapshot
from tests.spark.purge.outgoing_run import JOB, RESOURCE, OutgoingRun, target_of

OLD = CUTOFF - timedelta(days=1)
RESEND = "update sym_outgoing_batch set status = 'NE' where batch_id = 2"
# A node more for batch 2 is a new row of the events' own range; a new batch has a higher id.
INTO_BATCH = "insert into sym_outgoing_batch (batch_id, node_id, status, create_time)"
NEW_BATCH = (
    f"{INTO_BATCH} values (9, '00001', 'NE', now()); insert into sym_data_event (data_id, batch_id)"
    " select data_id, 9 from sym_data where data_id between 3 and 4"
)
NEW_NODE = f"{INTO_BATCH} values (2, '00002', 'NE', now())"


@pytest.fixture
def place(postgresql_url: str) -> Place:
    """Data 1 to 6 in batches 1 to 3, two rows each, all delivered; 7 and batch 4 are the greatest."""
    found = Place(postgresql_url, version="3.x")
    data = {"table_name": "item", "event_type": "I", "trigger_hist_id": 1, "create_time": OLD}
    batch = {"node_id": "00001", "status": "OK", "create_time": OLD}
    build(
        found,
        {
            "data": [{**data, "data_id": number} for number in range(1, 8)],
            "data_event": [{"data_id": number, "batch_id": (number + 1) // 2} for number in range(1, 8)],
            "outgoing_batch": [{**batch, "batch_id": number} for number in range(1, 5)],
        },
    )
    return found


@pytest.fixture
def peer(place: Place) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """SymmetricDS: a connection whose transaction the test ends by hand."""
    with closing(_peer(place)) as connection:
        yield connection


def _peer(place: Place) -> psycopg.Connection[tuple[object, ...]]:
    url = make_url(place.url).set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(url)


def _unit(place: Place, step: Step) -> UnitSpec:
    run = OutgoingRun(place, PurgeSpec(CUTOFF), job_id=JOB)
    return run.unit(step, f"{step.lower()}-1", 1, 6 if step == "DATA" else 3)


def _start(place: Place, spec: UnitSpec) -> Future[UnitResult]:
    """Run a unit in a thread of its own."""

    def work() -> UnitResult:
        with connect(target_of(place), application_name="setup") as conn:
            OutgoingRun(place, PurgeSpec(CUTOFF)).claim(conn)
            return run_unit(conn, spec)

    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(work)
    finally:
        pool.shutdown(wait=False)


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def _is_waiting(place: Place) -> bool:
    """Whether the unit waits for somebody's lock."""
    with closing(_peer(place)) as watcher:
        rows = watcher.execute(
            "select 1 from pg_stat_activity where application_name like %s and wait_event_type = 'Lock'",
            (f"{JOB}:%",),
        )
        return rows.fetchone() is not None


@pytest.mark.parametrize("step", ["DATA", "EVENTS"])
def test_resend_committed_while_the_unit_waits_for_its_lock_keeps_its_rows(
    place: Place, peer: psycopg.Connection[tuple[object, ...]], step: Step
) -> None:
    peer.execute(RESEND)
    unit = _start(place, _unit(place, step))
    _wait_until(lambda: _is_waiting(place))
    peer.commit()
    result = unit.result(timeout=10)
    assert (result.rows, result.locked_batches) == (4, 3)
    after = snapshot(place)
    assert [row["data_id"] for row in after["data"]] == ([3, 4, 7] if step == "DATA" else list(range(1, 8)))
    assert {row["batch_id"] for row in after["data_event"]} == ({2, 4} if step == "EVENTS" else {1, 2, 3, 4})


@pytest.mark.parametrize(("step", "made"), [("DATA", NEW_BATCH), ("DATA", NEW_NODE), ("EVENTS", NEW_NODE)])
def test_batch_made_after_the_lock_statement_began_keeps_its_rows(
    place: Place, peer: psycopg.Connection[tuple[object, ...]], step: Step, made: str
) -> None:
    # Batch 1 is held by somebody, so the lock statement has read its rows and waits: what is committed now is
    # in no snapshot of it. The delete, a statement of its own, must see it.
    peer.execute("select 1 from sym_outgoing_batch where batch_id = 1 for update")
    unit = _start(place, _unit(place, step))
    _wait_until(lambda: _is_waiting(place))
    with closing(_peer(place)) as router:
        router.execute(made)
        router.commit()
    peer.commit()
    assert unit.result(timeout=10).rows == 4
    after = snapshot(place)
    if step == "DATA":
        assert [row["data_id"] for row in after["data"]] == [3, 4, 7]
    else:
        assert {row["batch_id"] for row in after["data_event"]} == {2, 4}


@pytest.mark.parametrize("step", ["DATA", "EVENTS"])
def test_resend_that_comes_later_waits_for_the_unit_and_no_longer(
    place: Place, peer: psycopg.Connection[tuple[object, ...]], step: Step
) -> None:
    with connect(target_of(place), application_name="t") as conn:
        OutgoingRun(place, PurgeSpec(CUTOFF)).claim(conn)
    # Somebody holds the unit's ledger row, so the unit stops after its delete, with its locks.
    peer.execute(
        "insert into lethe.unit_ledger (job_id, unit_id, step, attempt, token, rows_affected, detail)"
        " values (%s, %s, 'x', 1, 1, 0, '{}')",
        (JOB, f"{step.lower()}-1"),
    )
    unit = _start(place, _unit(place, step))
    _wait_until(lambda: _is_waiting(place))
    done = threading.Event()

    def resend() -> None:
        with closing(_peer(place)) as symmetric:
            symmetric.execute(RESEND)
            symmetric.commit()
            done.set()

    thread = threading.Thread(target=resend)
    thread.start()
    assert not done.wait(0.1)
    peer.rollback()
    assert unit.result(timeout=10).rows == 6
    thread.join(timeout=10)
    assert done.is_set()


def test_batch_that_stays_locked_is_a_lock_timeout_and_nothing_is_removed(
    place: Place, peer: psycopg.Connection[tuple[object, ...]]
) -> None:
    before = snapshot(place)
    peer.execute(RESEND)
    with pytest.raises(TargetLockTimeout):
        _start(place, _unit(place, "DATA")).result(timeout=10)
    peer.rollback()
    assert snapshot(place) == before


def test_batches_step_leaves_a_batch_that_is_resent_under_its_delete(
    place: Place, peer: psycopg.Connection[tuple[object, ...]]
) -> None:
    with connect(target_of(place), application_name="t") as conn:
        OutgoingRun(place, PurgeSpec(CUTOFF)).claim(conn)
        run_unit(conn, _unit(place, "EVENTS"))
    peer.execute(RESEND)
    unit = _start(place, _unit(place, "BATCHES"))
    _wait_until(lambda: _is_waiting(place))
    peer.commit()
    assert unit.result(timeout=10).rows == 2
    assert [row["batch_id"] for row in snapshot(place)["outgoing_batch"]] == [2, 4]


def test_unit_of_an_older_claim_removes_nothing(place: Place) -> None:
    before = snapshot(place)
    with connect(target_of(place), application_name="t") as conn:
        OutgoingRun(place, PurgeSpec(CUTOFF)).claim(conn)
        raise_fence(conn, RESOURCE, token=2, owner="another")
        with pytest.raises(FenceRaised):
            run_unit(conn, _unit(place, "DATA"))
    assert snapshot(place) == before
