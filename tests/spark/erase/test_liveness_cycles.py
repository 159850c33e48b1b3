"""Erasures one after the other, of a log that goes on being written: none misses what an earlier one took.

Some files are left out in a pass, as protected ones are, and some entries are left half erased, as by a kill.
"""

from pathlib import Path

import pytest

from spark.erase.calls.request import PlanRequest
from spark.erase.plan.plan import plan_erasure
from spark.erase.reasons import Switches
from tests.oracles.je_liveness import ERASED, Rule, first_vlsn_file, judge
from tests.oracles.je_liveness_reader import Log, read_environment
from tests.oracles.je_liveness_recovery import recover
from tests.oracles.je_small_engine import SmallEngine
from tests.oracles.je_small_replica import SmallReplica
from tests.spark.erase.liveness import chosen_by, complaints, planned

PASSES = 4


def go_on(engine: SmallEngine, phases: int) -> None:
    for _ in range(phases):
        engine.phase()
        luck = engine.chance.random()
        if luck < 0.25:
            engine.checkpoint()
        elif luck < 0.32:
            engine.checkpoint(stops_at=engine.chance.randrange(12))
            engine.crash()


def erase_in_part(engine: SmallEngine, log: Log, plan: set[int], turn: int) -> None:
    """Overwrite in the writer's own files: a third of them not at all, a quarter of the rest by type only."""
    for entry in [log.at[lsn] for lsn in plan]:
        if (entry.file * 7 + turn) % 3 == 0:
            continue
        data, item = engine.log.files[entry.file], entry.offset + entry.header
        data[entry.offset + 4] = ERASED
        if (entry.file * 5 + turn) % 4:
            data[item : item + entry.size] = bytes(entry.size)


def check_pass(engine: SmallEngine, directory: Path) -> tuple[Log, set[int]]:
    engine.log.write(directory)
    log = read_environment(directory)
    recovered, verdict = recover(log), judge(log)
    assert (recovered.records, recovered.fatal) == (engine.truth(), [])
    plan = plan_erasure(directory, PlanRequest())
    chosen = set(chosen_by(plan))
    assert chosen == set(verdict.erasable)
    assert complaints(log, verdict, chosen) == []
    assert plan.erased_reached == ()
    # Whatever is switched off: never more than with everything on.
    switches = Switches(*[engine.chance.random() < 0.5 for _ in range(4)])
    assert planned(directory, PlanRequest(switches=switches)) <= chosen
    return log, chosen


def live_through(seed: int, directory: Path) -> int:
    """Work, erase, work on; how many entries were planned in all."""
    engine = SmallEngine(seed)
    engine.live(12)
    count = 0
    for turn in range(PASSES):
        if engine.chance.random() < 0.4:
            engine.crash()
        log, plan = check_pass(engine, directory)
        erase_in_part(engine, log, plan, seed + turn)
        count += len(plan)
        go_on(engine, 10)
    return count


def test_log_that_is_erased_while_it_grows_keeps_its_records(tmp_path: Path) -> None:
    assert sum(live_through(seed, tmp_path / str(seed)) for seed in range(6)) > 1_600


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_logs_that_are_erased_while_they_grow_keep_their_records(tmp_path: Path) -> None:
    for seed in (*range(15), *range(1_000, 1_300)):
        live_through(seed, tmp_path / str(seed))


def replicated(seed: int) -> SmallReplica:
    """A node that was rolled back, and whose index was truncated, or not, or by who did not commit."""
    engine = SmallReplica(seed)
    chance = engine.chance
    engine.live(8)
    for _ in range(3):
        engine.roll_back_to_here(3, commit=chance.random() < 0.5)
        go_on(engine, 3)
    files = sorted(engine.log.files)
    if chance.random() < 0.9:
        engine.write_range(1)
        engine.truncate_index(chance.choice(files[:-1]))
    if chance.random() < 0.4:
        txn = engine.begin()
        engine.truncate_index(files[-2], txn)
        if chance.random() < 0.5:
            engine.end(txn, commit=False)
    go_on(engine, chance.randrange(6))
    if chance.random() < 0.5:
        engine.close()
    else:
        engine.crash()
    return engine


def check_replica(seed: int, directory: Path) -> int:
    log, chosen = check_pass(replicated(seed), directory)
    plan = plan_erasure(directory, PlanRequest())
    assert plan.vlsn_index is not None
    first = plan.vlsn_index.first_file
    assert first == first_vlsn_file(Rule(log))
    assert all(lsn >> 32 < first for lsn in chosen)
    return len(chosen)


def test_replicated_log_is_erased_before_its_index_only(tmp_path: Path) -> None:
    counts = [check_replica(seed, tmp_path / str(seed)) for seed in range(10)]
    assert sum(counts) > 400
    assert 0 in counts


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_replicated_logs_are_erased_before_their_index_only(tmp_path: Path) -> None:
    for seed in (*range(25), *range(1_000, 1_400)):
        check_replica(seed, tmp_path / str(seed))
