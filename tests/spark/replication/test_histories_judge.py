"""Random lives of two or three replicas, with restores of target, metadata and both, before a naive judge.

The judge knows every change that a writer was answered, each by a key of its own, and looks at entries alone.
Nothing that it knows is removed by a session that nobody allowed to; and green means equal.
Source: issue 15, B7.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from spark.formats.csn import Csn
from spark.replication.proofs import judging as proofs
from spark.replication.records import SessionMode
from tests.spark.replication.broken_rule import broken_rule
from tests.spark.replication.history_sites import Machine, session
from tests.spark.replication.wire_model_site import fast_folder

TRIALS = 100
SHARES = 2
TRIALS_LONG = 2_000
STEPS = 12
REACHED = ("UP_TO_DATE", "DIVERGED", "DUPLICATE_RID", "put back", "trimmed", "discarded", "CONSUMER_AHEAD")


class Wrong(AssertionError):
    """A promise was broken."""


class Life:
    """One trial."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = Random(seed)
        self.happened: Counter[str] = Counter()
        self.number = 0
        count = self.random.choice((2, 2, 3))
        self.machines = [Machine(rid, folder / f"{rid}.db") for rid in range(1, count + 1)]
        if self.random.random() < 0.15:
            self.machines.append(Machine(self.random.randint(1, count), folder / "twin.db"))
        self.kept = {id(each): [each.back_up()] for each in self.machines}

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
        for _ in range(2):
            for supplier in self.machines:
                for consumer in self.machines:
                    if supplier is not consumer:
                        self.bring(supplier, consumer, SessionMode.INCREMENTAL, discard=False)

    def close(self) -> None:
        for each in self.machines:
            each.close()

    def step(self) -> None:
        chance, machine = self.random.random(), self.random.choice(self.machines)
        now_s = max(each.clock_s for each in self.machines) + 1
        for each in self.machines:
            each.clock_s = now_s
        if chance < 0.35:
            self.write(machine)
        elif chance < 0.70:
            others = [each for each in self.machines if each is not machine]
            self.bring(machine, self.random.choice(others), SessionMode.INCREMENTAL, discard=False)
        elif chance < 0.78:
            others = [each for each in self.machines if each is not machine]
            discard = self.random.random() < 0.3
            self.bring(machine, self.random.choice(others), SessionMode.TOTAL, discard=discard)
        elif chance < 0.84:
            self.kept[id(machine)].append(machine.back_up())
        elif chance < 0.94:
            what = self.random.choice(("target", "metadata", "both", "both"))
            machine.put_back(
                self.random.choice(self.kept[id(machine)]),
                target=what != "metadata",
                metadata=what != "target",
            )
            self.happened["put back"] += 1
            if self.random.random() < 0.7:
                self.write(machine)
        else:
            self.trim(machine)

    def write(self, machine: Machine) -> None:
        keys = []
        for _ in range(self.random.randint(1, 4)):
            self.number += 1
            keys.append(b"%d" % self.number)
        written = machine.write(*keys)
        if not set(written) <= held(machine):
            raise Wrong(f"what was answered is not there: {written}")

    def trim(self, machine: Machine) -> None:
        ruv = machine.state().vectors.ruv
        if ruv:
            rid = self.random.choice(sorted(ruv))
            if machine.trim(str(ruv[rid]), rid):
                self.happened["trimmed"] += 1

    def bring(self, supplier: Machine, consumer: Machine, mode: SessionMode, *, discard: bool) -> None:
        before = held(supplier), held(consumer)
        outcome = session(
            supplier,
            consumer,
            mode=mode,
            discard=discard,
            rows_max=self.random.randint(1, 4),
            batches_max=self.random.choice((None, None, None, 1)) if mode is not SessionMode.TOTAL else None,
        )
        self.happened[outcome] += 1
        after = held(supplier), held(consumer)
        if discard and before[1] - after[1]:
            self.happened["discarded"] += 1
        if before[0] - after[0] or (not discard and before[1] - after[1]):
            raise Wrong(f"{mode} removed unasked: {before[0] - after[0]} {before[1] - after[1]}, {outcome}")
        if outcome == "UP_TO_DATE":
            ruv = supplier.state().vectors.ruv
            foreign = {csn for csn in after[1] if csn <= ruv.get(Csn(csn).rid, "")} - after[0]
            if after[0] - after[1] or foreign:
                raise Wrong(f"green while different: {after[0] - after[1]} {foreign}")


def held(machine: Machine) -> set[str]:
    """The changes that a replica shows; each has a key of its own."""
    return {csn for csn, _ in machine.entries().values()}


def _run(seeds: range) -> Counter[str]:
    happened: Counter[str] = Counter()
    for seed in seeds:
        with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
            life = Life(seed, Path(folder))
            try:
                life.run()
            except Wrong as wrong:
                raise Wrong(f"seed {seed}: {wrong}") from wrong
            finally:
                life.close()
            happened += life.happened
    return happened


@pytest.mark.parametrize("share", range(SHARES))
def test_nothing_acknowledged_goes_unasked_and_green_means_equal(share: int) -> None:
    size = TRIALS // SHARES
    happened = _run(range(share * size, (share + 1) * size))
    assert [what for what in REACHED if not happened[what]] == []


@pytest.mark.long
@pytest.mark.parametrize("share", range(100))
def test_many_lives(share: int) -> None:
    size = (TRIALS_LONG - TRIALS) // 100
    _run(range(TRIALS + share * size, TRIALS + (share + 1) * size))


def test_the_judge_finds_what_histories_alone_forbid() -> None:
    from spark.replication.sessions import begin as beginning
    from spark.replication.sessions import session as product

    with (
        broken_rule(product, "require_one_history", lambda found: None),
        broken_rule(beginning, "require_covered", lambda *told: None),
        broken_rule(proofs, "require_one_history", lambda found: None),
        broken_rule(proofs, "_check_last", lambda *told: None),
        pytest.raises(Wrong),
    ):
        _run(range(TRIALS))
