"""A writer that is ended anywhere: the log stays legal, nothing live is lost, and the next run finishes.

The writer ends between any two system calls of a round, and in the middle of a write, by injection; a child
process ends by kill -9 at random in test_child.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spark.erase.calls import Mode, PlannedFile, RoundCall, Step
from tests.spark.erase.conftest import Sample
from tests.spark.erase.hands_at_work import (
    Ending,
    Killed,
    Traced,
    claim,
    contents,
    erase,
    erased_by_hand,
    overwrite,
    plan,
    planned_bytes,
    put,
    rounds_of,
    rows_of,
    split_at_syncs,
)
from tests.spark.erase.live_records import live_records

FIRST = "00000000.jdb"
SECTOR_BYTES = 512
# Enough for the whole file in blocks, and for each planned byte of a few entries.
ROWS = {Mode.CLOSED: 5_120, Mode.LIVE: 4}


@pytest.fixture
def work(copy_of: Callable[[str], Path], mode: Mode) -> tuple[Path, PlannedFile, RoundCall]:
    directory = copy_of("closed")
    claim(directory)
    file = plan(directory).files[0]
    return directory, file, next(rounds_of(directory, file, mode=mode, rows=ROWS[mode]))


Work = tuple[Path, PlannedFile, RoundCall]


class Aftermath:
    """What holds after every end of a writer; states that were judged before are not judged again."""

    def __init__(self, directory: Path, file: PlannedFile, sample: Sample) -> None:
        self.directory, self.file = directory, file
        self.before = contents(directory)
        self.live = {tuple(record) for record in sample.expected["live_records"]}
        self.planned = {row["offset"] for row in rows_of(file)}
        self.others = plan(directory).files[1:]
        self.judged: dict[bytes, bool] = {}

    def judge(self) -> None:
        now = (self.directory / FIRST).read_bytes()
        if now in self.judged:
            return
        self.judged[now] = True
        begun = [each for each in planned_bytes(self.file) if now[each[0]] == 43]
        unfinished = {kind - 4 for kind, begin, end in begun if any(now[begin:end])}
        self.assert_only_planned_bytes_changed(now)
        again = plan(self.directory)
        rows = {row["offset"]: row for row in rows_of(again.files[0])}
        assert {at for at, row in rows.items() if row["reason"] == 1} == unfinished
        # An entry that is erased proves nothing any more: what only it proved may stay, until the next cycle.
        assert rows.keys() <= self.planned
        assert rows.keys() >= unfinished
        assert live_records(self.directory) == self.live

    def assert_only_planned_bytes_changed(self, now: bytes) -> None:
        rest = bytearray(now)
        for kind, begin, end in planned_bytes(self.file):
            if now[kind] == 43:
                rest[kind], rest[begin:end] = self.before[FIRST][kind], self.before[FIRST][begin:end]
        assert rest == self.before[FIRST]
        assert {name: data for name, data in contents(self.directory).items() if name != FIRST} == {
            name: data for name, data in self.before.items() if name != FIRST
        }

    def restore(self) -> None:
        for name, data in self.before.items():
            (self.directory / name).write_bytes(data)

    def finish(self) -> None:
        """The next cycle: a plan of what is left, to its end, with its proof."""
        erase(self.directory)
        assert sum(file.entry_count for file in plan(self.directory).files) == 0
        assert live_records(self.directory) == self.live


def with_mtime(call: RoundCall, directory: Path) -> RoundCall:
    mtime_ns = (directory / FIRST).stat().st_mtime_ns
    return replace(call, identity=replace(call.identity, mtime_ns=mtime_ns))


@pytest.mark.parametrize("mode", [Mode.CLOSED, Mode.LIVE])
def test_writer_ended_between_any_two_calls_leaves_a_legal_log(
    samples: dict[str, Sample], work: Work, mode: Mode
) -> None:
    directory, file, call = work
    aftermath = Aftermath(directory, file, samples["closed"])
    traced = Traced()
    assert overwrite(call, traced).step == Step.DONE
    assert traced.calls >= 10
    for at in range(1, traced.calls + 1):
        aftermath.restore()
        with pytest.raises(Killed):
            overwrite(with_mtime(call, directory), Ending(at=at))
        aftermath.judge()
    assert len(aftermath.judged) >= 3
    aftermath.finish()


@pytest.mark.parametrize("mode", [Mode.CLOSED])
@pytest.mark.parametrize("torn", [512, 4096])
def test_write_that_is_torn_at_a_block_leaves_a_legal_log(
    samples: dict[str, Sample], work: Work, mode: Mode, torn: int
) -> None:
    directory, file, call = work
    aftermath = Aftermath(directory, file, samples["closed"])
    traced = Traced()
    assert overwrite(call, traced).step == Step.DONE
    torn_at = 0
    for at in range(1, traced.calls + 1):
        aftermath.restore()
        layer = Ending(at=at, torn=torn)
        try:
            overwrite(with_mtime(call, directory), layer)
        except Killed:
            torn_at += 1
            aftermath.judge()
    assert torn_at == sum(what == "write" for what, _, _, _ in traced.seen)
    aftermath.finish()


@pytest.mark.parametrize("mode", [Mode.CLOSED])
def test_power_that_fails_between_two_syncs_leaves_a_legal_log(
    samples: dict[str, Sample], work: Work, mode: Mode
) -> None:
    # Of what was written since the last sync, any sectors may have reached the medium.
    directory, file, call = work
    aftermath = Aftermath(directory, file, samples["closed"])
    traced = Traced()
    assert overwrite(call, traced).step == Step.DONE
    chance = random.Random(4)
    durable = bytearray(aftermath.before[FIRST])
    for step in split_at_syncs(traced):
        whole = put(durable, step)
        for likely in (0.1, 0.5, 0.9):
            state = bytearray(durable)
            for at in range(0, len(state), SECTOR_BYTES):
                if chance.random() < likely:
                    state[at : at + SECTOR_BYTES] = whole[at : at + SECTOR_BYTES]
            (directory / FIRST).write_bytes(state)
            aftermath.judge()
        durable = bytearray(whole)
    assert durable == erased_by_hand(aftermath.before[FIRST], file)
    assert len(aftermath.judged) == 7
    aftermath.finish()


@pytest.mark.parametrize("mode", [Mode.CLOSED])
def test_round_that_was_ended_is_finished_by_doing_it_again(work: Work, mode: Mode) -> None:
    directory, file, call = work
    wanted = erased_by_hand((directory / FIRST).read_bytes(), file)
    original = (directory / FIRST).read_bytes()
    traced = Traced()
    assert overwrite(call, traced).step == Step.DONE
    for at in range(1, traced.calls + 1):
        (directory / FIRST).write_bytes(original)
        with pytest.raises(Killed):
            overwrite(with_mtime(call, directory), Ending(at=at))
        assert overwrite(replace(call, is_first=False)).step == Step.DONE
        assert (directory / FIRST).read_bytes() == wanted
