"""The same as test_unit_resend on MariaDB, whose subqueries, snapshots and lock waits are others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pymysql
import pytest
from sqlalchemy.engine import make_url

from spark.purge.statements import PurgeSpec, Statements, Step
from spark.purge.unit import UnitResult, UnitSpec, run_unit
from spark.targets.connection import SessionLimits, connect
from spark.targets.errors import FenceRaised, TargetLockTimeout
from spark.targets.fence import raise_fence
from tests.oracles.symmetricds import CUTOFF, Place, build, snapshot
from tests.spark.purge.outgoing_run import JOB, RESOURCE, OutgoingRun, target_of

Peer = Any  # a connection of PyMySQL
OLD = CUTOFF - timedelta(days=1)
RESEND = ("update sym_outgoing_batch set status = 'NE' where batch_id = 2",)
INTO_BATCH = "insert into sym_outgoing_batch (batch_id, node_id, status, create_time)"
NEW_BATCH = (
    f"{INTO_BATCH} values (9, '00001', 'NE', now())",
    "insert into sym_data_event (data_id, batch_id) values (3, 9), (4, 9)",
)
NEW_NODE = (f"{INTO_BATCH} values (2, '00002', 'NE', now())",)


@pytest.fixture
def place(mariadb_url: str) -> Place:
    """Data 1 to 6 in batches 1 to 3, two rows each, all delivered; 7 and batch 4 are the greatest."""
    found = Place(mariadb_url, version="3.x")
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
    with closing(connect(target_of(found), application_name="setup")) as conn:
        OutgoingRun(found, PurgeSpec(CUTOFF)).claim(conn)
    return found


@pytest.fixture
def peer(place: Place) -> Iterator[Peer]:
    """SymmetricDS: a connection whose transaction the test ends by hand."""
    with closing(_peer(place)) as connection:
        yield connection


def _peer(place: Place) -> Peer:
    url = make_url(place.url)
    return pymysql.connect(
        host=url.host,
        port=url.port or 3306,
        user=url.username,
        password=str(url.password or ""),
        database=url.database,
        ssl_disabled=True,
    )


def _do(peer: Peer, statements: tuple[str, ...], *, commit: bool = False) -> None:
    with peer.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    if commit:
        peer.commit()


def _unit(place: Place, step: Step, archive_dir: Path | None = None) -> UnitSpec:
    run = OutgoingRun(place, PurgeSpec(CUTOFF), job_id=JOB, archive_dir=archive_dir)
    return run.unit(step, f"{step.lower()}-1", 1, 6 if step == "DATA" else 3)


def _start(place: Place, spec: UnitSpec) -> Future[UnitResult]:
    """Run a unit in a thread of its own."""

    def work() -> UnitResult:
        patient = SessionLimits(lock_timeout_ms=5_000)
        with connect(target_of(place), application_name="setup", limits=patient) as conn:
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
        time.sleep(0.15)  # InnoDB shows what it showed before to whoever looks again within 100 ms


def _is_waiting(place: Place) -> bool:
    """Whether somebody in this database waits for a lock."""
    with closing(_peer(place)) as watcher, watcher.cursor() as cursor:
        cursor.execute(
            "select 1 from information_schema.innodb_trx t join information_schema.processlist p"
            " on p.id = t.trx_mysql_thread_id where t.trx_state = 'LOCK WAIT' and p.db = database()"
        )
        return bool(cursor.fetchall())


@pytest.mark.parametrize("archive", [False, True])
@pytest.mark.parametrize("step", ["DATA", "EVENTS"])
def test_resend_committed_while_the_unit_waits_for_its_lock_keeps_its_rows(
    place: Place, peer: Peer, step: Step, archive: bool, tmp_path: Path
) -> None:
    _do(peer, RESEND)
    unit = _start(place, _unit(place, step, tmp_path if archive else None))
    _wait_until(lambda: _is_waiting(place))
    peer.commit()
    result = unit.result(timeout=10)
    assert (result.rows, result.locked_batches) == (4, 3)
    assert (result.archive is not None) == archive
    after = snapshot(place)
    assert [row["data_id"] for row in after["data"]] == ([3, 4, 7] if step == "DATA" else list(range(1, 8)))
    assert {row["batch_id"] for row in after["data_event"]} == ({2, 4} if step == "EVENTS" else {1, 2, 3, 4})


@pytest.mark.parametrize(("step", "made"), [("DATA", NEW_BATCH), ("DATA", NEW_NODE), ("EVENTS", NEW_NODE)])
def test_batch_made_after_the_lock_statement_began_keeps_its_rows(
    place: Place, peer: Peer, step: Step, made: tuple[str, ...]
) -> None:
    # The unit has read which batches it reaches and waits for batch 1: what is committed now it has not seen.
    _do(peer, ("select 1 from sym_outgoing_batch where batch_id = 1 for update",))
    unit = _start(place, _unit(place, step))
    _wait_until(lambda: _is_waiting(place))
    with closing(_peer(place)) as router:
        _do(router, made, commit=True)
    peer.commit()
    assert unit.result(timeout=10).rows == 4
    after = snapshot(place)
    if step == "DATA":
        assert [row["data_id"] for row in after["data"]] == [3, 4, 7]
    else:
        assert {row["batch_id"] for row in after["data_event"]} == {2, 4}


@pytest.mark.parametrize("step", ["DATA", "EVENTS"])
def test_resend_that_comes_later_waits_for_the_unit_and_no_longer(
    place: Place, peer: Peer, step: Step
) -> None:
    # Somebody holds the unit's ledger row, so the unit stops after its delete, with its locks.
    _do(
        peer,
        (
            "insert into lethe_unit_ledger (job_id, unit_id, step, attempt, token, rows_affected, detail)"
            f" values ('{JOB}', '{step.lower()}-1', 'x', 1, 1, 0, '{{}}')",
        ),
    )
    unit = _start(place, _unit(place, step))
    _wait_until(lambda: _is_waiting(place))
    done = threading.Event()

    def resend() -> None:
        with closing(_peer(place)) as symmetric:
            _do(symmetric, RESEND, commit=True)
            done.set()

    thread = threading.Thread(target=resend)
    thread.start()
    assert not done.wait(0.3)
    peer.rollback()
    assert unit.result(timeout=10).rows == 6
    thread.join(timeout=10)
    assert done.is_set()


def test_batch_that_stays_locked_is_a_lock_timeout_and_nothing_is_removed(place: Place, peer: Peer) -> None:
    """Error 1205 ends the statement, not the transaction: the unit must end it itself."""
    before = snapshot(place)
    _do(peer, RESEND)
    with connect(target_of(place), application_name="t") as conn:
        with pytest.raises(TargetLockTimeout):
            run_unit(conn, _unit(place, "DATA"))
        assert not conn.in_transaction
        with closing(_peer(place)) as other:  # nothing is held any more: batch 1 can be set back
            _do(other, ("update sym_outgoing_batch set status = 'OK' where batch_id = 1",), commit=True)
        peer.rollback()
        assert snapshot(place) == before
        assert run_unit(conn, _unit(place, "DATA")).rows == 6


def test_batches_step_leaves_a_batch_that_is_resent_under_its_delete(place: Place, peer: Peer) -> None:
    with connect(target_of(place), application_name="t") as conn:
        run_unit(conn, _unit(place, "EVENTS"))
    _do(peer, RESEND)
    unit = _start(place, _unit(place, "BATCHES"))
    _wait_until(lambda: _is_waiting(place))
    peer.commit()
    assert unit.result(timeout=10).rows == 2
    assert [row["batch_id"] for row in snapshot(place)["outgoing_batch"]] == [2, 4]


def test_rows_that_are_being_captured_hold_no_unit_up(place: Place, peer: Peer) -> None:
    """The greatest row is always somebody's open transaction: a subquery for it in the delete would wait."""
    _do(
        peer,
        (
            "insert into sym_data (data_id, table_name, event_type, trigger_hist_id) values (8, 'x', 'I', 1)",
            f"{INTO_BATCH} values (5, '00001', 'NE', now())",
        ),
    )
    with connect(target_of(place), application_name="t") as conn:
        assert [run_unit(conn, _unit(place, step)).rows for step in ("DATA", "EVENTS", "BATCHES")] == [
            6,
            6,
            3,
        ]
    peer.rollback()


def test_unit_of_an_older_claim_removes_nothing(place: Place) -> None:
    before = snapshot(place)
    with connect(target_of(place), application_name="t") as conn:
        raise_fence(conn, RESOURCE, token=2, owner="another")
        with pytest.raises(FenceRaised):
            run_unit(conn, _unit(place, "DATA"))
    assert snapshot(place) == before


def test_lock_statement_locks_the_batches_of_its_range_and_no_other(place: Place, peer: Peer) -> None:
    """As a semi-join the server read the primary key from its start and locked every batch."""
    with connect(target_of(place), application_name="t") as conn, conn.transaction():
        statements = Statements.of(conn, PurgeSpec(CUTOFF))
        sql = statements.lock_listed("DATA", conn.dialect.share_lock("b"))
        assert sql is not None
        assert conn.execute(sql, {"listed": [2]}) == [(2,)]
        with peer.cursor() as cursor:
            cursor.execute("set innodb_lock_wait_timeout = 1")
            assert (
                cursor.execute("update sym_outgoing_batch set status = 'IG' where batch_id in (1, 3, 4)") == 3
            )
            with pytest.raises(pymysql.OperationalError, match="1205"):
                cursor.execute("update sym_outgoing_batch set status = 'IG' where batch_id = 2")
        peer.rollback()
