"""Two attempts of one unit with the same token, as a cancelled worker of Spark and the redo of its unit."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from spark.purge.statements import PurgeSpec
from spark.purge.unit import UnitResult, UnitSpec, run_unit
from spark.targets.archive.archive import list_attempts, read_rows, verify
from spark.targets.connection import connect
from spark.targets.errors import TargetError, TargetLockTimeout
from spark.targets.fence import raise_fence
from spark.targets.ledger import archive_manifest, find_unit, ledger_totals
from spark.targets.transaction import Done, run_in_transaction
from tests.oracles.symmetricds import CUTOFF, Place, build, random_database, snapshot
from tests.spark.purge.outgoing_run import RESOURCE, OutgoingRun

TRIES_MAX = 200
GROUNDS = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.postgresql),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]


def _place(request: pytest.FixtureRequest, kind: str, directory: Path) -> Place:
    url = f"sqlite:///{directory}/sym.db" if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
    place = Place(url, version="3.x")
    build(place, random_database(Random(17), "3.x", rows=400))
    return place


@pytest.fixture(params=GROUNDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A random database of 400 captured rows."""
    return _place(request, request.param, tmp_path)


@pytest.fixture(params=GROUNDS[1:])
def server_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The same, where two transactions can write at a time."""
    return _place(request, request.param, tmp_path)


def _run(place: Place, directory: Path) -> OutgoingRun:
    spec = PurgeSpec(CUTOFF if place.dialect == "postgresql" else str(CUTOFF))
    return OutgoingRun(place, spec, rows=40, archive_dir=directory)


def _attempt(run: OutgoingRun, unit: UnitSpec, start: threading.Barrier) -> UnitResult:
    """One attempt on a connection of its own; tried again as the loop does after a transient error."""
    with closing(connect(run.target, application_name="t")) as conn:
        start.wait(10)
        for _ in range(TRIES_MAX):
            try:
                return run_unit(conn, unit)
            except TargetError as error:
                if not error.transient:
                    raise
        raise AssertionError("never came to its end")


def test_two_attempts_of_each_unit_at_once_count_it_once(place: Place, tmp_path: Path) -> None:
    """Rows, ledger and archive are those of one attempt; what the other wrote into a file is abandoned."""
    directory = tmp_path / "archive"
    run = _run(place, directory)
    before = snapshot(place)
    told: Counter[bool] = Counter()
    with closing(connect(run.target, application_name="t")) as conn, ThreadPoolExecutor(2) as pool:
        run.claim(conn)
        bounds = (0, 2**40)
        for unit in list(run.units(conn, "DATA", bounds)):
            start = threading.Barrier(2)
            results = [pool.submit(_attempt, run, unit, start) for _ in range(2)]
            both = [each.result(60) for each in results]
            told.update(each.repeated for each in both)
            assert both[0].rows == both[1].rows
        removed = len(before["data"]) - len(snapshot(place)["data"])
        totals = ledger_totals(conn, run.job_id)["DATA"]
        entries = archive_manifest(conn, run.job_id)
    assert told[False] == told[True] == totals.units > 5
    assert totals.rows == removed > 0
    assert {check.state for check in verify(entries)} == {"OK"}
    keys = [row[0] for entry in entries for row in read_rows(entry.path)]
    assert len(keys) == len(set(keys)) == removed
    files = list_attempts(directory, entries)
    assert len({file.path for file in files}) == len(files) >= len(entries)
    assert Counter(file.state for file in files)["VALID"] == len(entries)


def test_second_attempt_that_removes_rows_of_its_own_is_rolled_back(
    server_place: Place, tmp_path: Path
) -> None:
    """Between its look into the ledger and its end the first one commits: a conflict to be tried again."""
    directory = tmp_path / "archive"
    run = _run(server_place, directory)
    with (
        closing(connect(run.target, application_name="first")) as first,
        closing(connect(run.target, application_name="second")) as second,
    ):
        run.claim(first)
        unit = run.unit("DATA", "data-1", 0, 2**40)
        done: list[UnitResult] = []

        def overtaken() -> Done:
            done.append(run_unit(first, unit))
            return Done(7, done[0].archive)

        with pytest.raises(TargetLockTimeout, match="committed by another worker"):
            run_in_transaction(second, unit, overtaken)
        between = snapshot(server_place)
        again = run_unit(second, unit)
        found = find_unit(second, run.job_id, "data-1")
    assert found is not None
    assert (again.repeated, again.rows, found.rows_affected) == (True, done[0].rows, done[0].rows)
    assert snapshot(server_place) == between


def test_attempt_that_wakes_after_the_proof_of_silence_can_begin_nothing(
    place: Place, tmp_path: Path
) -> None:
    """The proof's fence is above the attempt's own token."""
    run = _run(place, tmp_path / "archive")
    unit = run.unit("DATA", "data-1", 0, 2**40)
    before = snapshot(place)
    with closing(connect(run.target, application_name="t")) as conn:
        run.claim(conn)
        raise_fence(conn, RESOURCE, token=2, owner=run.job_id)
    with (
        closing(connect(run.target, application_name="asleep")) as conn,
        pytest.raises(TargetError, match="token 2, ours is 1"),
    ):
        run_unit(conn, unit)
    assert snapshot(place) == before
    assert not list(tmp_path.glob("archive/*"))
