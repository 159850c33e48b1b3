"""A writer that is ended anywhere: the log stays legal, nothing live is lost, and the next run finishes.

The writer ends between any two system calls of a round, or in the middle of a write, by injection; by kill -9
at random it ends in test_child.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spark.erase.calls.calls import Mode, PlannedFile, RoundCall, Step
from spark.formats.je.log import file_name
from tests.spark.erase.aftermath import Aftermath
from tests.spark.erase.hands_at_work import (
    Ending,
    Killed,
    Traced,
    claim,
    erased_by_hand,
    overwrite,
    plan,
    put,
    rounds_of,
    rows_of,
    split_at_syncs,
)
from tests.spark.erase.random_environments import random_environment

SECTOR_BYTES = 512
SEEDS = [7, pytest.param(4, marks=pytest.mark.long)]
LIKELIHOODS = (0.05, 0.3, 0.6, 0.95)


class Work:
    """A round of the file with the most to erase, in a claimed environment."""

    def __init__(self, directory: Path, mode: Mode = Mode.CLOSED, rows: int | None = None) -> None:
        claim(directory)
        self.directory = directory
        self.file: PlannedFile = max(plan(directory).files, key=lambda file: file.entry_count)
        self.call = next(rounds_of(directory, self.file, mode=mode, rows=rows))
        self.aftermath = Aftermath(directory)
        self.path = directory / file_name(self.file.number)
        self.original = self.path.read_bytes()
        self.traced = Traced()
        assert overwrite(self.call, self.traced).step == Step.DONE

    def again(self) -> RoundCall:
        """The round, on a file that is as it was before."""
        self.path.write_bytes(self.original)
        mtime_ns = self.path.stat().st_mtime_ns
        return replace(self.call, identity=replace(self.call.identity, mtime_ns=mtime_ns))


def small_environment(tmp_path: Path, seed: int) -> Path:
    directory = tmp_path / "random"
    directory.mkdir()
    random_environment(directory, seed, size=200)
    return directory


def end_anywhere(work: Work, *, every: int = 1) -> None:
    """End the writer before each of its calls, or every so many of them."""
    assert work.traced.calls >= 10
    for at in range(1, work.traced.calls + 1, every):
        with pytest.raises(Killed):
            overwrite(work.again(), Ending(at=at))
        work.aftermath.judge()
    assert len(work.aftermath.judged) >= 3
    work.aftermath.finish()


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
def test_writer_ended_between_any_two_calls_leaves_a_legal_log(
    copy_of: Callable[[str], Path], every: int
) -> None:
    # Before each of its calls it ends in a small environment, below; in a log of JE's own, before each third.
    end_anywhere(Work(copy_of("closed")), every=every)


@pytest.mark.parametrize("seed", SEEDS)
def test_writer_of_single_bytes_ended_between_any_two_calls_leaves_a_legal_log(
    tmp_path: Path, seed: int
) -> None:
    end_anywhere(Work(small_environment(tmp_path, seed), Mode.LIVE, rows=6))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("torn", [512, 4096])
def test_write_that_is_torn_at_a_block_leaves_a_legal_log(tmp_path: Path, seed: int, torn: int) -> None:
    work = Work(small_environment(tmp_path, seed))
    ends = 0
    for at in range(1, work.traced.calls + 1):
        for blocks in range(1, 4):
            try:
                overwrite(work.again(), Ending(at=at, torn=torn, blocks=blocks))
            except Killed:
                ends += 1
                work.aftermath.judge()
    assert ends == 3 * sum(what == "write" for what, _, _, _ in work.traced.seen)
    assert len(work.aftermath.judged) >= 4
    work.aftermath.finish()


@pytest.mark.parametrize("seed", SEEDS)
def test_power_that_fails_between_two_syncs_leaves_a_legal_log(tmp_path: Path, seed: int) -> None:
    # Of what was written since the last sync, any sectors may have reached the medium.
    work = Work(small_environment(tmp_path, seed))
    chance = random.Random(seed)
    durable = bytearray(work.original)
    for step in split_at_syncs(work.traced):
        whole = put(durable, step)
        for likelihood in LIKELIHOODS:
            state = bytearray(durable)
            for at in range(0, len(state), SECTOR_BYTES):
                if chance.random() < likelihood:
                    state[at : at + SECTOR_BYTES] = whole[at : at + SECTOR_BYTES]
            work.path.write_bytes(state)
            work.aftermath.judge()
        durable = bytearray(whole)
    assert durable == erased_by_hand(work.original, work.file)
    assert len(work.aftermath.judged) >= 2 * len(LIKELIHOODS)
    work.aftermath.finish()


def test_sector_of_items_that_came_before_its_types_would_be_noticed(tmp_path: Path) -> None:
    # The judge itself: an item of zeros under its old type is what the order of the syncs rules out.
    work = Work(small_environment(tmp_path, 7))
    _, types, items = split_at_syncs(work.traced)
    marked = put(work.original, types)
    changed = [at for at in range(len(marked)) if marked[at] != work.original[at]]
    wrong, late = bytearray(put(marked, items)), changed[len(changed) // 2]
    wrong[late] = work.original[late]
    work.path.write_bytes(wrong)
    with pytest.raises(AssertionError):
        work.aftermath.judge()


def test_round_that_was_ended_is_finished_by_doing_it_again(copy_of: Callable[[str], Path]) -> None:
    work = Work(copy_of("closed"))
    wanted = erased_by_hand(work.original, work.file)
    for at in range(1, work.traced.calls + 1):
        with pytest.raises(Killed):
            overwrite(work.again(), Ending(at=at))
        assert overwrite(replace(work.call, is_first=False)).step == Step.DONE
        assert work.path.read_bytes() == wanted


def test_erasure_begun_of_what_the_tail_names_for_an_abort_is_finished(tmp_path: Path) -> None:
    # An embedded record's LN may go although the tail names it; once its type was 43, nothing told so any
    # more, and half of its erasure would have stayed for as long as that tail.
    directory = small_environment(tmp_path, 7)
    kept = [file for file in plan(directory).files if "NEEDED_FOR_ABORT" in file.kept]
    work = Work(directory)
    _, types, _ = split_at_syncs(work.traced)
    work.path.write_bytes(put(work.original, types))
    unfinished = {row["offset"] for row in rows_of(again(directory, work)) if row["reason"] == 1}
    assert unfinished == {row["offset"] for row in rows_of(work.file)}
    assert [file for file in plan(directory).files if "NEEDED_FOR_ABORT" in file.kept] == kept


def again(directory: Path, work: Work) -> PlannedFile:
    return next(file for file in plan(directory).files if file.number == work.file.number)
