"""Random logs: the plan erases what an independent model calls obsolete, and a recovery never misses it.

The logs come from a small store of the tests' own (`je_small_engine`), byte by byte; it crashes, loses nodes,
renames, removes. Its own books are the truth that a recovery of the log, before and after, must find.
"""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.oracles.je_liveness import Rule, judge
from tests.oracles.je_liveness_mutants import MUTANTS, wrong_plans
from tests.oracles.je_liveness_reader import Log, read_environment
from tests.oracles.je_liveness_recovery import recover, replay, with_erased
from tests.oracles.je_small_engine import SmallEngine
from tests.spark.erase.liveness import complaints, planned

CUTS_PER_LOG = 3
WRONG = ["IgnoresTheVeto", *(mutant.__name__ for mutant in MUTANTS)]
# Logs of which at least one shows each wrong rule; some rules show in one of eighty only.
TELLING = (0, 2, 5, 6, 23, 77)
SIZES = [10, 25, 60]


def grown(seed: int, directory: Path) -> SmallEngine:
    """An environment that was closed, or halted in the middle of work."""
    engine = SmallEngine(seed)
    engine.live(engine.chance.choice(SIZES))
    if engine.chance.random() < 0.5:
        engine.close()
    else:
        engine.crash()
    engine.log.write(directory)
    return engine


def cut(log: Log, end: int) -> Log:
    return Log([entry for entry in log.entries if entry.lsn < end], log.files, torn=True)


def check(seed: int, directory: Path) -> tuple[int, int]:
    """One environment; how many entries it has, and how many of them are planned."""
    engine = grown(seed, directory)
    log, plan = read_environment(directory), planned(directory)
    verdict, recovered = judge(log), recover(log)
    assert recovered.records == engine.truth() == replay(log), seed
    assert (recovered.fatal, recovered.missing) == ([], []), seed
    assert complaints(log, verdict, plan) == [], seed
    assert plan == set(verdict.erasable), seed
    # Even a tail that is lost after all, although it was synced, leaves a log that recovers as without us.
    tail = [entry.lsn for entry in log.entries if entry.lsn > Rule(log).checkpoint.lsn]
    for end in random.Random(seed).sample(tail, min(CUTS_PER_LOG, len(tail))):
        assert recover(cut(with_erased(log, plan), end)) == recover(cut(log, end)), (seed, hex(end))
    return len(log.entries), len(plan)


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 12), *(pytest.param(first, 30, marks=pytest.mark.long) for first in (0, 30, 60, 90))],
)
def test_random_log_is_planned_as_the_model_says_and_recovers_the_same(
    first: int, count: int, tmp_path: Path
) -> None:
    found = [check(seed, tmp_path / str(seed)) for seed in range(first, first + count)]
    assert sum(entries for entries, _ in found) > 5_000 * count // 30
    assert sum(planned for _, planned in found) > 2_000 * count // 30


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(1_000, 3_000, 100))
def test_many_random_logs_are_planned_as_the_model_says(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 100):
        check(seed, tmp_path / str(seed))


def noticed_in(seeds: Iterable[int], root: Path) -> dict[str, int]:
    """In how many of these logs the judge complains, by the wrong rule."""
    found: dict[str, int] = {}
    for seed in seeds:
        directory = root / str(seed)
        grown(seed, directory)
        log = read_environment(directory)
        verdict = judge(log)
        for name, wrong in wrong_plans(log).items():
            found[name] = found.get(name, 0) + bool(complaints(log, verdict, wrong()))
    return found


@pytest.fixture(scope="module")
def noticed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    return noticed_in(TELLING, tmp_path_factory.mktemp("wrong"))


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_rule_is_noticed(noticed: dict[str, int], wrong: str) -> None:
    assert noticed[wrong] > 0


@pytest.mark.long
def test_wrong_rules_are_noticed_in_many_logs(tmp_path: Path) -> None:
    noticed = noticed_in(range(80), tmp_path)
    assert [wrong for wrong in WRONG if not noticed[wrong]] == []
