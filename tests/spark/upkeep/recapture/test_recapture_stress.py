"""Captures anew while somebody works on the same keys all the time: other nodes have the same in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from spark.targets.connection import SessionLimits, connect
from spark.targets.errors import TargetLockTimeout
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger
from spark.upkeep.unit import UpkeepUnit, run_upkeep
from tests.oracles.symmetricds import Place, snapshot
from tests.spark.purge.outgoing_run import target_of
from tests.spark.upkeep.recapture.case import Case, case_of
from tests.spark.upkeep.recapture.ground import clear, make, work
from tests.spark.upkeep.recapture.hands import hand
from tests.spark.upkeep.recapture.recapture_run import run_of
from tests.spark.upkeep.recapture.replica import keys_named, replicate
from tests.spark.upkeep.recapture.shapes import ITEM, is_written
from tests.spark.upkeep.recapture.stranding import strand_all
from tests.spark.upkeep.recapture.triggers import Capture
from tests.spark.upkeep.upkeep_run import RESOURCE


@contextmanager
def _writer(place: Place, rng: Random) -> Iterator[list[BaseException]]:
    """Works on the table until the end, in transactions of some statements; what went wrong."""
    faults: list[BaseException] = []
    ended = threading.Event()

    def write() -> None:
        with hand(place, commits=False) as worker:
            while not ended.is_set():
                for _ in range(rng.choice([1, 1, 2, 4]) if place.dialect == "postgresql" else 1):
                    work(rng, worker, ITEM, changes_keys=False)
                    time.sleep(rng.choice([0, 0, 0.02]))
                worker.commit()

    def guarded() -> None:
        try:
            write()
        except Exception as exc:  # noqa: BLE001
            faults.append(exc)

    thread = threading.Thread(target=guarded)
    thread.start()
    try:
        yield faults
    finally:
        ended.set()
        thread.join()


def _until_done(place: Place, unit: UpkeepUnit) -> int:
    with connect(
        target_of(place), application_name="worker", limits=SessionLimits(lock_timeout_ms=500)
    ) as conn:
        for _ in range(100):
            try:
                return run_upkeep(conn, unit).rows
            except TargetLockTimeout:
                time.sleep(0.05)
    raise AssertionError(f"{unit.unit_id} was never given its locks")


def hold(place: Place, seed: int) -> int:
    """One database; how many stranded rows went."""
    rng = Random(seed)
    clear(place)
    ground = make(place, [ITEM], [Capture("t", 1, ITEM, ITEM.names, ITEM.key)])
    with hand(place) as worker:
        for _ in range(30):
            work(rng, worker, ITEM, changes_keys=False)
    strand_all(ground)
    case = case_of(ground, f"seed {seed}")
    with connect(target_of(place), application_name="lists") as conn:
        assert ensure_ledger(conn)
        raise_fence(conn, RESOURCE, token=1, owner="job")
        units = run_of(place, rows=rng.choice([2, 5, 50])).units(conn)
    with _writer(place, rng) as faults:
        rows = sum(_until_done(place, unit) for unit in units)
    assert faults == [], case.name
    _check_converges(case)
    return rows


def _check_converges(case: Case) -> None:
    """Keys of which nothing stranded is left are the same on a node that has got what is new."""
    place, ground = case.ground.place, case.ground
    stranded = {each.data_id for each in case.model.verdicts}
    after = snapshot(place)["data"]
    left = [row for row in after if row["data_id"] in stranded]
    unsure = {key for row in left for key in keys_named(ground, row)}
    got = replicate(ground, "t", [row for row in after if row["data_id"] not in stranded])
    today = ground.users()[ITEM.name]
    for key in {*today, *got} - unsure:
        assert (key in today) == (key in got), f"{case.name}: {key}"
        wrong = [
            column.name
            for column in ITEM.columns
            if not is_written(column, today[key][column.name], got[key][column.name])
        ]
        assert not wrong, f"{case.name}: {key}: {wrong}"
    # Whatever was left: a key that is gone is not brought back, and one that came back is there.
    assert {key for key in got if key not in today} == set(), case.name


def test_nodes_have_the_same_while_somebody_writes(served: Place) -> None:
    assert sum(hold(served, seed) for seed in range(3)) > 20


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_nodes_have_the_same_while_somebody_writes_for_long(served: Place) -> None:
    for seed in range(100, 200):
        hold(served, seed)
