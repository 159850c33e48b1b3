"""LIVE beside a writer that makes and deletes files all the time: it comes forward, and harms nothing.

With files of 1 MB and three new ones a second 6 of 7 plans ended because a file had vanished, and nothing was
written at all.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spark.erase.calls.calls import RefusalCode
from tests.oracles.je_liveness_reader import read_environment
from tests.oracles.je_liveness_recovery import recover
from tests.spark.erase.live_churn import cold
from tests.spark.erase.live_eraser import Eraser
from tests.spark.erase.live_runs import NODE_GRACE_MS, start, wait_until_ready

SECONDS, FILE_BYTES, FILES_PER_SECOND = 3.0, 40_000, 12.0
SECONDS_LONG, FILE_BYTES_LONG, FILES_PER_SECOND_LONG = 600.0, 1_000_000, 3.0
ERASED_MIN, LOST_MAX = 0.8, 0.05
PAUSE_S = 0.05
PASSES_MIN = 3


@dataclass
class Figures:
    """What came of some time beside the writer; files by number."""

    passes: int = 0
    lost: int = 0
    deleted: set[int] = field(default_factory=set)
    eligible: set[int] = field(default_factory=set)
    erased: set[int] = field(default_factory=set)


class CountingEraser(Eraser):
    """An eraser that knows which files it has found eligible, and which it has erased and proved."""

    figures: Figures

    def make_pass(self) -> None:
        figures = self.figures
        figures.passes += 1
        plan = self.plan()
        if self.is_refused(plan.refusal):
            figures.lost += 1
            return
        self.witness = plan.witness
        for file in (each for each in plan.files if each.entry_count):
            figures.eligible.add(file.number)
            proved, moved = self.files_proved, self.refused[RefusalCode.LOG_MOVED]
            self.erase(file, plan.mode)
            if self.files_proved > proved:
                figures.erased.add(file.number)
            if self.refused[RefusalCode.LOG_MOVED] > moved:  # as a cycle does: the plan is made anew
                return


def numbers(directory: Path) -> set[int]:
    return {int(path.name[:8], 16) for path in directory.glob("*.jdb")}


def beside_churn(root: Path, *, seconds: float, file_bytes: int, files_per_second: float) -> Figures:
    directory, copy = root / "environment", root / "copy"
    directory.mkdir()
    copy.mkdir()
    process = start("live_churn", directory, copy, file_bytes, files_per_second)
    try:
        wait_until_ready(process)
        eraser = CountingEraser(directory, NODE_GRACE_MS, rows_per_round=5_000)
        figures = eraser.figures = Figures()
        until = time.monotonic() + seconds
        while time.monotonic() < until or figures.passes < PASSES_MIN:
            eraser.make_pass()
            time.sleep(PAUSE_S)
        assert process.poll() is None, "JE would have died"
    finally:
        process.kill()
        process.communicate()
    left = numbers(directory)
    figures.deleted = set(range(max(left))) - left
    check_records(directory, file_bytes)
    return figures


def check_records(directory: Path, file_bytes: int) -> None:
    """What never changed is there, value by value, as a recovery would find it."""
    found = recover(read_environment(directory))
    assert not found.fatal, found.fatal
    assert not found.missing, found.missing
    size = file_bytes // 40
    stayed = {key: value for key, value in found.records["records"].items() if key.startswith(b"cold-")}
    assert len(stayed) > 300
    assert all(value == cold(int(key[5:]), size) for key, value in stayed.items())
    assert sorted(int(key[5:]) for key in stayed) == list(range(len(stayed)))


def judge(figures: Figures, root: Path, *, deletions_min: int) -> None:
    survived = figures.eligible & numbers(root / "environment")
    share = len(figures.erased & survived) / len(survived)
    print(
        f"{figures.passes} passes, {figures.lost} lost, {len(figures.deleted)} files deleted, "
        f"{len(survived)} eligible ones survived, {share:.0%} of them erased"
    )
    assert len(figures.deleted) >= deletions_min
    assert figures.lost <= LOST_MAX * figures.passes
    assert len(survived) >= 20
    assert share >= ERASED_MIN


def test_live_comes_forward_beside_a_writer_that_deletes_files(tmp_path: Path) -> None:
    figures = beside_churn(
        tmp_path, seconds=SECONDS, file_bytes=FILE_BYTES, files_per_second=FILES_PER_SECOND
    )
    judge(figures, tmp_path, deletions_min=10)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_live_comes_forward_at_three_deletions_a_second(tmp_path: Path) -> None:
    figures = beside_churn(
        tmp_path,
        seconds=SECONDS_LONG,
        file_bytes=FILE_BYTES_LONG,
        files_per_second=FILES_PER_SECOND_LONG,
    )
    judge(figures, tmp_path, deletions_min=1_000)
