"""LIVE passes beside a process that writes, and kill -9 of either: nothing that is needed goes."""

import random
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark.erase.calls.calls import Mode
from spark.erase.live import rules as live_rules
from spark.erase.reading import live_reading
from spark.erase.reading.log import Checkpoint, Log
from spark.formats.je.log import lsn_of
from tests.spark.erase.live_eraser import Eraser
from tests.spark.erase.live_judge import Judged
from tests.spark.erase.live_runs import NODE_GRACE_MS, Run, killed_after, start_eraser, wait_until_ready

WRITER_KILLS, WRITER_KILLS_LONG = 4, 140
ERASER_KILLS, ERASER_KILLS_LONG = 4, 60
ERASER_KILLS_PER_WRITER = 4
BEFORE_KILL_S = (0.02, 0.45)
# So many writers a broken eraser may get past before it is called harmless.
RUNS_MAX = 40


def each_run(root: Path, count: int, *, seed: int) -> Iterator[Run]:
    """Writers one after another; the next one starts while the one before is looked at."""
    following: Run | None = Run(root / "run-0", seed)
    try:
        for number in range(1, count + 1):
            run, following = following, None
            assert run is not None
            try:
                following = Run(root / f"run-{number}", seed + number) if number < count else None
                run.go()
                yield run
            finally:
                run.end()
    finally:
        if following is not None:
            following.end()


def run_until_killed(
    run: Run,
    chance: random.Random,
    *,
    power_lost: bool,
    node_grace_ms: int = NODE_GRACE_MS,
    before_kill_s: tuple[float, float] = BEFORE_KILL_S,
) -> tuple[Eraser, Judged]:
    """Make passes until the writer is killed; the pass in work goes on to its end."""
    eraser = Eraser(run.directory, node_grace_ms)
    with run.syncs_recorded(), killed_after(run, chance.uniform(*before_kill_s)):
        while run.process.poll() is None:
            eraser.make_pass()
    run.kill()
    if power_lost:
        run.lose_power(chance)
    return eraser, run.judge()


def kill_writers(root: Path, count: int, *, seed: int) -> None:
    chance = random.Random(seed)
    erasers, judgements = [], []
    for number, run in enumerate(each_run(root, count, seed=seed)):
        eraser, judged = run_until_killed(run, chance, power_lost=number % 2 == 1)
        erasers.append(eraser)
        judgements.append(judged)
    live = sum(each.passes[Mode.LIVE] for each in erasers)
    leaves, nodes = (sum(getattr(each, kind) for each in judgements) for kind in ("leaves", "nodes"))
    proved = sum(each.files_proved for each in erasers)
    refused = sum((each.refused for each in erasers), start=type(erasers[0].refused)())
    print(f"{count} kills, {live} passes, {proved} files proved, {leaves} leaves, {nodes} nodes, {refused}")
    assert min(live, leaves, nodes, proved) > count // 2


def kill_erasers(root: Path, count: int, *, seed: int) -> None:
    """Kill erasers beside writers that live on; a writer stands still while its state is judged."""
    chance = random.Random(seed)
    half_erased = leaves = 0
    for run in each_run(root, count // ERASER_KILLS_PER_WRITER, seed=seed):
        for _ in range(ERASER_KILLS_PER_WRITER):
            process = start_eraser(run.directory, NODE_GRACE_MS)
            wait_until_ready(process)
            run.process.send_signal(signal.SIGCONT)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=chance.uniform(*BEFORE_KILL_S))
            process.kill()
            process.communicate()
            run.process.send_signal(signal.SIGSTOP)
            half_erased += run.judge().half_erased
        run.kill()
        Eraser(run.directory, NODE_GRACE_MS).make_pass()
        judged = run.judge()
        assert judged.half_erased == 0
        leaves += judged.leaves
    print(f"{count} kills, {half_erased} entries half erased, {leaves} leaves")
    assert leaves > count


def test_writer_killed_beside_live_passes_loses_nothing(tmp_path: Path) -> None:
    kill_writers(tmp_path, WRITER_KILLS, seed=41)


def test_eraser_killed_beside_a_writer_leaves_a_legal_log(tmp_path: Path) -> None:
    kill_erasers(tmp_path, ERASER_KILLS, seed=43)


@pytest.mark.long
def test_many_writers_killed_beside_live_passes_lose_nothing(tmp_path: Path) -> None:
    kill_writers(tmp_path, WRITER_KILLS_LONG, seed=1041)


@pytest.mark.long
def test_many_erasers_killed_beside_a_writer_leave_a_legal_log(tmp_path: Path) -> None:
    kill_erasers(tmp_path, ERASER_KILLS_LONG, seed=1043)


def found_out(root: Path, **options: Any) -> str:
    """Let a broken eraser work beside writers until a judge, or the writer itself, sees it."""
    chance = random.Random(47)
    for run in each_run(root, RUNS_MAX, seed=2000):
        try:
            run_until_killed(run, chance, power_lost=True, **options)
        except AssertionError as error:
            return str(error)
    return "nobody noticed"


def usable_from(first_active: Callable[[Log, Checkpoint], int]) -> Callable[[Log], list[Checkpoint]]:
    """The checkpoints of a log as an eraser sees them that takes another LSN for the first active one."""
    honest = live_rules.usable_checkpoints

    def usable(log: Log) -> list[Checkpoint]:
        return [
            replace(each, end=replace(each.end, first_active_lsn=first_active(log, each)))
            for each in honest(log)
        ]

    return usable


def end_of(log: Log, checkpoint: Checkpoint) -> int:
    last = log.files[-1]
    return lsn_of(last.number, last.identity.size)


def own_end(log: Log, checkpoint: Checkpoint) -> int:
    return checkpoint.lsn


@pytest.mark.parametrize("first_active", [end_of, own_end])
def test_eraser_that_ignores_the_first_active_lsn_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_active: Callable[[Log, Checkpoint], int]
) -> None:
    monkeypatch.setattr(live_rules, "usable_checkpoints", usable_from(first_active))
    assert re.search("needed, and erased|FATAL", found_out(tmp_path))


@pytest.mark.long
def test_eraser_that_does_not_sync_its_checkpoint_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_reading, "make_durable", lambda directory, files: None)
    assert "needed, and erased" in found_out(tmp_path)


def test_eraser_of_nodes_without_the_progress_rule_is_found_out(tmp_path: Path) -> None:
    assert "FATAL a node" in found_out(tmp_path, node_grace_ms=0, before_kill_s=(3.0, 4.0))
