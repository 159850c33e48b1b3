"""The plan with a task for each file against the inline plan: the same answer, entry for entry."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spark.erase.calls.calls import Costs, PlanAnswer
from spark.erase.calls.request import PlanRequest
from spark.erase.plan.overview import find_spread, overlook
from spark.erase.plan.plan import plan_erasure
from spark.erase.plan.plan_answer import of_plan
from spark.erase.plan.spread import plan_spread, survey_packed
from spark.erase.plan.survey import Survey, find_tasks, pack, survey_file, unpack, unpack_rising
from spark.erase.plan.window import IS_ROWS, ROWS, look_through
from spark.erase.reasons import Switches
from tests.oracles.je_small_engine import SmallEngine
from tests.spark.erase.conftest import Sample
from tests.spark.erase.random_environments import random_environment
from tests.spark.erase.spread_here import SpreadHere, outcome

SAMPLES = ["closed", "crash", "replicated", "swept", "halted", "comparator"]
LATER_MS = 3_590_326_130_000
REQUESTS = {
    "all": PlanRequest(),
    "listed": PlanRequest(switches=Switches(erase_all_obsolete_entries=False), protected={0: "Backup-7"}),
    "expired": PlanRequest(now_ms=LATER_MS, erase_expired=True, created_before_ms=1_795_163_065_000),
}


def both(directory: Path, request: PlanRequest) -> tuple[object, object]:
    """The inline plan and the other; they read the files as often as they like."""
    inline = outcome(lambda: of_plan(plan_erasure(directory, request)))
    spread = outcome(lambda: plan_spread(directory, request, SpreadHere()))
    return without_costs(inline), without_costs(spread)


def without_costs(found: object) -> object:
    return replace(found, costs=Costs()) if isinstance(found, PlanAnswer) else found


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("name", SAMPLES)
def test_real_environment_is_planned_as_inline(
    samples: dict[str, Sample], name: str, request_name: str
) -> None:
    inline, spread = both(samples[name].path, REQUESTS[request_name])
    assert isinstance(inline, PlanAnswer)
    assert spread == inline


def check_random(seed: int, directory: Path) -> int:
    random_environment(directory, seed, size=250)
    request = list(REQUESTS.values())[seed % len(REQUESTS)]
    inline, spread = both(directory, replace(request, created_before_ms=None))
    assert spread == inline, seed
    return sum(each.entry_count for each in inline.files) if isinstance(inline, PlanAnswer) else 0


def test_random_environments_are_planned_as_inline(tmp_path: Path) -> None:
    planned = [check_random(seed, made(tmp_path / str(seed))) for seed in range(6)]
    assert sum(planned) > 400


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", [0, *range(1_000, 1_500, 100)])
def test_many_random_environments_are_planned_as_inline(first: int, tmp_path: Path) -> None:
    planned = [check_random(seed, made(tmp_path / str(seed))) for seed in range(first, first + 100)]
    assert sum(planned) > 5_000


@pytest.mark.parametrize("count", [4, pytest.param(40, marks=pytest.mark.long)])
def test_logs_of_another_writer_are_planned_as_inline(count: int, tmp_path: Path) -> None:
    for seed in range(count):
        engine = SmallEngine(seed)
        engine.live(40)
        if seed % 2:
            engine.close()
        else:
            engine.crash()
        engine.log.write(tmp_path / str(seed))
        inline, spread = both(tmp_path / str(seed), PlanRequest())
        assert spread == inline, seed


def made(directory: Path) -> Path:
    directory.mkdir()
    return directory


def overwritten(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped byte": lambda path: overwritten(path / "00000001.jdb", 5_000, b"\xff\x00\xff"),
    "two files damaged": lambda path: [
        overwritten(path / f"0000000{number}.jdb", 5_000, b"\xff\x00\xff") for number in (2, 0)
    ],
    "a file cut off": lambda path: os.truncate(path / "00000000.jdb", 7_001),
    "another file's name": lambda path: (path / "00000002.jdb").rename(path / "00000005.jdb"),
    "no checkpoint": lambda path: [(path / f"0000000{number}.jdb").unlink() for number in (1, 2, 3)],
    "a file missing": lambda path: (path / "00000001.jdb").unlink(),
    "torn at its end": lambda path: os.truncate(
        path / "00000003.jdb", (path / "00000003.jdb").stat().st_size - 5
    ),
    "no files": lambda path: [each.unlink() for each in path.glob("*.jdb")],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_refused_as_inline(copy_of: Callable[[str], Path], damage: str) -> None:
    directory = copy_of("closed")
    DAMAGE[damage](directory)
    inline, spread = both(directory, PlanRequest())
    assert spread == inline


def test_file_that_changes_between_two_looks_is_refused(copy_of: Callable[[str], Path]) -> None:
    directory = copy_of("closed")
    tasks = find_tasks(directory)
    os.utime(directory / "00000001.jdb", ns=(0, 0))
    found = survey_file(tasks[1], with_lists=False)
    assert (getattr(found, "code", None), getattr(found, "file", None)) == (
        "LOG_FILE_CHANGED",
        "00000001.jdb",
    )


def surveys_of(directory: Path) -> list[Survey]:
    found = [survey_file(task, with_lists=False) for task in find_tasks(directory)]
    surveys = [each for each in found if isinstance(each, Survey)]
    assert len(surveys) == len(found)
    return surveys


def with_ends(survey: Survey, txns: list[int], offsets: list[int]) -> Survey:
    ended = pack((np.diff(txns, prepend=0), np.array(offsets, dtype=np.uint32), np.full(len(txns), 16)))
    return replace(
        survey,
        ended=ended,
        ended_count=len(txns),
        ended_range=(min(txns), max(txns)),
        open=np.array([], dtype=np.int64),
    )


def test_transactions_of_two_files_are_looked_at_together_and_no_other(samples: dict[str, Sample]) -> None:
    # A transaction with two ends is not understood; whoever saw one file only would take it for committed.
    first, second, third, _ = surveys_of(samples["closed"].path)
    first = replace(with_ends(first, [1, 5, 9], [100, 200, 300]), open=np.array([12, 77]))
    second = with_ends(second, [5, 6, 12], [400, 500, 600])
    third = with_ends(third, [-3, 6, 13], [700, 800, 900])
    found = find_spread([first, second, third])
    assert list(zip(found.txn.tolist(), found.lsn.tolist(), strict=True)) == [
        (5, 200),
        (5, (1 << 32) + 400),
        (6, (1 << 32) + 500),
        (12, (1 << 32) + 600),
        (6, (2 << 32) + 800),
    ]


def test_many_transactions_are_compared_some_at_a_time(
    samples: dict[str, Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark.erase.plan.overview.ENDED_AT_ONCE", 4)
    monkeypatch.setattr("spark.erase.plan.overview.SAMPLE_STEP", 2)
    first, second, *_ = surveys_of(samples["closed"].path)
    first = with_ends(first, list(range(0, 90, 3)), list(range(30)))
    second = with_ends(second, list(range(0, 90, 5)), list(range(18)))
    assert sorted(set(find_spread([first, second]).txn.tolist())) == list(range(0, 90, 15))


def test_same_hash_of_another_key_is_no_newer_version() -> None:
    rows = [(7, 1, b"one"), (7, 2, b"two"), (9, 3, b"one"), (9, 4, b"one")]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([hash_ for hash_, _, _ in rows], pa.int64()),
            pa.array([0] * 4, pa.int64()),
            pa.array([1] * 4, pa.int64()),
            pa.array([lsn for _, lsn, _ in rows], pa.int64()),
            pa.array([True] * 4),
            pa.array([key for _, _, key in rows], pa.large_binary()),
        ],
        schema=ROWS,
    )
    found = unpack(look_through([IS_ROWS + batch.serialize().to_pybytes()])).found
    assert {file: [unpack_rising(each).tolist() for each in pair] for file, pair in found.items()} == {
        0: [[3], [1], []]  # superseded, collided, later than the last checkpoint
    }


def test_overview_holds_no_key(tmp_path: Path) -> None:
    written = random_environment(tmp_path, 3, size=250)
    contents = [
        content for task in find_tasks(tmp_path) for _, content in survey_packed(task, with_lists=False)
    ]
    keys = {marker.key for marker in written.markers.values() if len(marker.key) > 12}
    raw = [pa.decompress(each[8:], int.from_bytes(each[:8], "little"), codec="zstd") for each in contents]
    overview = overlook(contents, directory=str(tmp_path))
    raw.append(pa.decompress(overview[8:], int.from_bytes(overview[:8], "little"), codec="zstd"))
    assert keys
    assert not any(key in bytes(each) for each in raw for key in keys)
