"""Captures anew while somebody else is writing to the same tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest

from spark.targets.connection import Connection, SessionLimits, connect
from spark.targets.errors import TargetLockTimeout
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger
from spark.targets.transaction import UnitResult
from spark.upkeep.unit import UpkeepUnit, run_upkeep
from tests.oracles.symmetricds import Place, Row, snapshot
from tests.oracles.symmetricds_schema import quoted
from tests.spark.purge.outgoing_run import target_of
from tests.spark.upkeep.recapture.case import Case, case_of
from tests.spark.upkeep.recapture.ground import Ground, delete, insert, make, update
from tests.spark.upkeep.recapture.hands import Hand, hand, until_somebody_waits
from tests.spark.upkeep.recapture.recapture_run import run_of
from tests.spark.upkeep.recapture.shapes import ITEM
from tests.spark.upkeep.recapture.stranding import strand_all
from tests.spark.upkeep.recapture.triggers import Capture, Variant
from tests.spark.upkeep.upkeep_run import RESOURCE

PATIENT = SessionLimits(lock_timeout_ms=20_000)
IMPATIENT = SessionLimits(lock_timeout_ms=500)
GONE, THERE, OTHER = 2, 1, 3


def _ground(place: Place, variant: Variant = "always") -> Ground:
    """Key 1 was inserted and changed, key 2 inserted and deleted, key 3 inserted: all of it is stranded."""
    ground = make(place, [ITEM], [Capture("t", 1, ITEM, ITEM.names, ITEM.key, variant)])
    with hand(place) as worker:
        for key in (THERE, GONE, OTHER):
            insert(worker, ITEM, {"id": key, "name": "first", "price": Decimal("1.5")})
        update(worker, ITEM, (THERE,), {"name": "second"})
        delete(worker, ITEM, (GONE,))
    strand_all(ground)
    return ground


@contextmanager
def _unit(place: Place, limits: SessionLimits) -> Iterator[tuple[Connection, UpkeepUnit]]:
    """A connection, and the unit of all rows."""
    with connect(target_of(place), application_name="unit", limits=limits) as conn:
        assert ensure_ledger(conn)
        raise_fence(conn, RESOURCE, token=1, owner="job")
        (unit,) = run_of(place, rows=500).units(conn)
        yield conn, unit


@contextmanager
def _running(place: Place, limits: SessionLimits = PATIENT) -> Iterator[Future[UnitResult]]:
    """The unit while it runs in a thread of its own."""
    with _unit(place, limits) as (conn, unit), ThreadPoolExecutor(1) as pool:
        yield pool.submit(run_upkeep, conn, unit)


def _of_key(place: Place, case: Case, key: int) -> list[Row]:
    """New captures of a key, in order."""
    greatest = max(row["data_id"] for row in case.original["data"])
    found = []
    for row in snapshot(place)["data"]:
        texts = [row["pk_data"], (row["row_data"] or "").split(",")[0]]
        if row["data_id"] > greatest and f'"{key}"' in texts:
            found.append(row)
    return found


def _events(rows: list[Row]) -> str:
    return "".join(row["event_type"] for row in rows)


@pytest.fixture
def peer(served: Place) -> Iterator[Hand]:
    """Somebody whose transaction the test ends."""
    with hand(served, commits=False) as opened:
        yield opened


def test_key_that_comes_back_meanwhile_is_deleted_first_and_captured_then(served: Place, peer: Hand) -> None:
    """The copied delete must not be the last word."""
    case = case_of(_ground(served), "race")
    insert(peer, ITEM, {"id": GONE, "name": "back", "price": None})
    with _running(served) as unit:
        until_somebody_waits(served)
        assert not unit.done(), "it did not wait for whoever is writing to the table"
        peer.commit()
        # The inserts of the deleted key have their row now, and go too or stay: both is right.
        assert unit.result().rows >= len(case.model.gone())
    rows = _of_key(served, case, GONE)
    assert _events(rows)[-1:] in ("U", "I"), rows
    assert '"back"' in rows[-1]["row_data"]
    assert snapshot(served)["data"] != case.original["data"]


def test_key_that_does_not_come_back_after_all_is_deleted(served: Place, peer: Hand) -> None:
    case = case_of(_ground(served), "race")
    insert(peer, ITEM, {"id": GONE, "name": "back", "price": None})
    with _running(served) as unit:
        until_somebody_waits(served)
        peer.rollback()
        assert unit.result().rows == len(case.model.gone())
    case.check()
    assert _events(_of_key(served, case, GONE)) == "D"


def test_row_that_changes_meanwhile_is_captured_with_its_newest_values(served: Place, peer: Hand) -> None:
    case = case_of(_ground(served), "race")
    update(peer, ITEM, (THERE,), {"name": "third"})
    with _running(served) as unit:
        until_somebody_waits(served)
        assert not unit.done()
        peer.commit()
        assert unit.result().rows == len(case.model.gone())
    rows = _of_key(served, case, THERE)
    assert _events(rows) in ("UU", "UUU")
    assert all('"third"' in row["row_data"] for row in rows)
    assert '"third"' in rows[-1]["old_data"], "the last one is the touch"


def test_row_that_does_not_change_after_all_is_captured_as_it_was(served: Place, peer: Hand) -> None:
    case = case_of(_ground(served), "race")
    update(peer, ITEM, (THERE,), {"name": "third"})
    with _running(served) as unit:
        until_somebody_waits(served)
        peer.rollback()
        assert unit.result().rows == len(case.model.gone())
    case.check()


def test_row_that_goes_meanwhile_is_deleted_at_last(served: Place, peer: Hand) -> None:
    """Its insert and its update have no row any more: they stay, and nothing comes after the delete."""
    case = case_of(_ground(served), "race")
    delete(peer, ITEM, (THERE,))
    with _running(served) as unit:
        until_somebody_waits(served)
        peer.commit()
        unit.result()
    assert _events(_of_key(served, case, THERE))[-1:] == "D"
    left = {row["data_id"] for row in snapshot(served)["data"]}
    own = [each.data_id for each in case.model.verdicts if each.key == ("item", (THERE,))]
    assert len(own) == 2
    assert left >= set(own)


def test_row_that_was_there_again_and_goes_meanwhile_is_deleted_at_last(served: Place, peer: Hand) -> None:
    """Its stranded delete is captured anew, or it stays; the last word is a delete."""
    ground = make(served, [ITEM], [Capture("t", 1, ITEM, ITEM.names, ITEM.key)])
    with hand(served) as worker:
        for _ in range(2):
            insert(worker, ITEM, {"id": THERE, "name": "first", "price": None})
            delete(worker, ITEM, (THERE,))
        insert(worker, ITEM, {"id": THERE, "name": "again", "price": None})
    strand_all(ground)
    case = case_of(ground, "race")
    delete(peer, ITEM, (THERE,))
    with _running(served) as unit:
        until_somebody_waits(served)
        peer.commit()
        unit.result()
    rows = _of_key(served, case, THERE)
    assert _events(rows)[-1:] == "D", rows
    left = {row["data_id"] for row in snapshot(served)["data"]}
    gone = [each.row["event_type"] for each in case.model.verdicts if each.data_id not in left]
    assert set(gone) <= {"D"}, "what is not there any more was not captured anew"
    assert not gone or _events(rows).count("D") == 2


def test_writer_of_touched_rows_and_unit_do_not_lock_each_other_out(served: Place) -> None:
    """The unit touches a row that somebody changes again and again, and has deletes to copy."""
    ground = _ground(served)
    _slow_down(served, THERE)
    case = case_of(ground, "race")
    with _running(served) as unit, hand(served) as other:
        for number in range(6):
            time.sleep(0.4)
            update(other, ITEM, (OTHER,), {"name": f"other {number}"})
        assert unit.result().rows == len(case.model.gone())
    rows = _of_key(served, case, OTHER)
    assert '"other 5"' in rows[-1]["row_data"]


@pytest.mark.parametrize("key", [THERE, GONE])
def test_lock_that_is_not_given_leaves_everything_as_it_was(served: Place, peer: Hand, key: int) -> None:
    case = case_of(_ground(served), "race")
    if key == THERE:
        update(peer, ITEM, (THERE,), {"name": "third"})
    else:
        insert(peer, ITEM, {"id": GONE, "name": "back", "price": None})
    with _unit(served, IMPATIENT) as (conn, unit):
        with pytest.raises(TargetLockTimeout):
            run_upkeep(conn, unit)
        peer.rollback()
        assert snapshot(served) == case.original
        assert case.ground.users() == case.model.users
        result = run_upkeep(conn, unit)  # nothing hinders it to do it now
        assert (result.rows, result.repeated) == (len(case.model.gone()), False)
    case.check()


def _slow_down(place: Place, key: int) -> None:
    """An update of a key takes its time, in a trigger that somebody has made for it."""
    with hand(place) as worker:
        if place.dialect == "postgresql":
            worker.run(
                "create function slow() returns trigger as $$ begin"
                f" if new.id = {key} then perform pg_sleep(2); end if; return null; end $$ language plpgsql"
            )
            worker.run('create trigger "aa_slow" after update on item for each row execute procedure slow()')
        else:
            name = quoted("aa_slow", place.dialect)
            worker.run(
                f"create trigger {name} after update on item for each row"
                f" begin declare x int; if new.id = {key} then set x = sleep(2); end if; end"
            )


def test_captures_of_others_at_that_time_are_not_taken_for_own(served: Place) -> None:
    """The trigger captures what has changed only, so no touch is captured; another row changes meanwhile."""
    ground = make(served, [ITEM], [Capture("t", 1, ITEM, ITEM.names, ITEM.key, "changed")])
    with hand(served) as worker:
        insert(worker, ITEM, {"id": OTHER, "name": "first", "price": None})
        worker.run(f"delete from {served.name('data')}")
        insert(worker, ITEM, {"id": THERE, "name": "first", "price": None})
    strand_all(ground)
    _slow_down(served, THERE)
    case = case_of(ground, "race")
    with _running(served) as unit, hand(served) as other:
        for number in range(6):
            time.sleep(0.5)
            update(other, ITEM, (OTHER,), {"name": f"other {number}"})
        unit.result()
    assert len(_of_key(served, case, OTHER)) == 6
    left = {row["data_id"] for row in snapshot(served)["data"]}
    kept = [each.data_id for each in case.model.verdicts if each.key == ("item", (THERE,))]
    assert left >= set(kept), "nothing captured the row anew, and it went all the same"


def test_workers_beside_each_other_leave_what_the_model_says(served: Place) -> None:
    """Units of two rows of the same keys, on three connections, again where a lock was not given."""
    case = case_of(_ground(served), "workers")
    with connect(target_of(served), application_name="lists") as conn:
        assert ensure_ledger(conn)
        raise_fence(conn, RESOURCE, token=1, owner="job")
        units = run_of(served, rows=2).units(conn)
    with ThreadPoolExecutor(3) as pool:
        rows = list(pool.map(lambda unit: _until_done(served, unit), units))
    assert sum(rows) == len(case.model.gone())
    case.check()


def _until_done(place: Place, unit: Any) -> int:
    with connect(target_of(place), application_name="worker", limits=IMPATIENT) as conn:
        for _ in range(40):
            try:
                return run_upkeep(conn, unit).rows
            except TargetLockTimeout:
                time.sleep(0.1)
    raise AssertionError(f"{unit.unit_id} was never given its locks")
