"""JE deletes files while a plan is made: the plan goes on, and nothing that is needed is erased by it.

The writer is one of `live_writer`, here in the same process, so that it works, and deletes, between any two
files that the plan reads. The naive model judges by a copy that lost no file.
"""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spark.erase.calls.calls import Mode, PlanAnswer, PlannedFile, RefusalCode
from spark.erase.reading import live_reading
from tests.spark.erase.live_eraser import Eraser
from tests.spark.erase.live_judge import Judged, judge
from tests.spark.erase.live_runs import NODE_GRACE_MS
from tests.spark.erase.live_writer import Writer

CASES, CASES_LONG = 3, 1_000
FILES_AT_FIRST = 7
# How often a file goes before the plan reads the next one.
DELETES = 0.4
STEPS_BETWEEN = 25
PASSES_LOST_MAX = 0.05


@dataclass
class DeletingWriter:
    """A writer that works, and deletes files, whenever the plan is about to read one."""

    root: Path
    seed: int
    deleted: int = 0
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.directory, self.copy = self.root / "environment", self.root / "copy"
        for folder in (self.root, self.directory, self.copy):
            folder.mkdir()
        self.chance = random.Random(self.seed)
        self.writer = Writer(self.directory, self.copy, self.seed, NODE_GRACE_MS)
        while self.writer.log.number < FILES_AT_FIRST:
            self.writer.step()
        self.writer.env.checkpoint()

    def work(self) -> None:
        """Some steps, and now and then the deletion of a file."""
        for _ in range(self.chance.randint(0, STEPS_BETWEEN)):
            self.writer.step()
        if self.chance.random() < DELETES:
            before = len(list(self.directory.glob("*.jdb")))
            self.writer.clean()
            self.deleted += len(list(self.directory.glob("*.jdb"))) < before

    @contextmanager
    def between_files(self) -> Iterator[None]:
        """Let the writer work before each file that is read."""
        real = live_reading.read_file

        def read_file(file: Any, **options: Any) -> Any:
            self.work()
            return real(file, **options)

        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(live_reading, "read_file", read_file)
            yield


class BusyEraser(Eraser):
    """An eraser beside a writer that works while a plan is made, and before each file of it."""

    beside: DeletingWriter

    def plan(self) -> PlanAnswer:
        with self.beside.between_files():
            return super().plan()

    def erase(self, file: PlannedFile, mode: Mode) -> None:
        self.beside.work()
        super().erase(file, mode)


def one_case(root: Path, seed: int) -> tuple[Counter[str], int, Judged]:
    beside = DeletingWriter(root, seed)
    eraser = BusyEraser(beside.directory, NODE_GRACE_MS)
    eraser.beside = beside
    for _ in range(2):
        eraser.make_pass()
    found = Counter({"passes": eraser.passes[Mode.LIVE], "entries": eraser.entries})
    found["lost"] = eraser.refused[RefusalCode.LOG_MOVED]
    beside.writer.log.push()
    (root / "judged").mkdir()
    return found, beside.deleted, judge(beside.directory, beside.copy, root / "judged")


def all_cases(root: Path, count: int, *, seed: int) -> None:
    found: Counter[str] = Counter()
    deleted = leaves = nodes = 0
    for number in range(count):
        ours, gone, judged = one_case(root / f"case-{number}", seed + number)
        shutil.rmtree(root / f"case-{number}")
        found += ours
        deleted, leaves, nodes = deleted + gone, leaves + judged.leaves, nodes + judged.nodes
    print(f"{count} cases, {deleted} files deleted, {dict(found)}, {leaves} leaves and {nodes} nodes erased")
    assert deleted > count
    assert leaves > 10 * count
    assert found["lost"] <= PASSES_LOST_MAX * 2 * count


def test_files_deleted_while_a_plan_is_made_cost_no_pass_and_no_record(tmp_path: Path) -> None:
    all_cases(tmp_path, CASES, seed=7_000)


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_files_deleted_while_many_plans_are_made_cost_no_record(tmp_path: Path) -> None:
    all_cases(tmp_path, CASES_LONG, seed=8_000)
