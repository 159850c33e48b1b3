"""Random lives of two or three replicas, with restores of target, metadata and both, before a naive judge.

The judge knows every change that a writer was answered, each by a key of its own, and looks at entries alone.
Nothing that it knows is removed by a session that nobody allowed to; and green means equal.
Source: issue 15, B7.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from spark.formats.csn import Csn
from spark.replication.proofs import judging as proofs
from spark.replication.records import SessionMode
from tests.spark.replication.broken_rule import broken_rule
from tests.spark.replication.history_sites import Machine, session
from tests.spark.replication.wire_model_site import fast_folder

TRIALS = 50
TRIALS_LONG = 2_000
STEPS = 12
MACHINES_PUT_BACK = 1_000
DOUBLED = 200
REACHED = ("UP_TO_DATE", "DIVERGED", "DUPLICATE_RID", "put back", "trimmed", "discarded", "CONSUMER_AHEAD")
PUT_BACK = ("target", "metadata", "both", "both")


@dataclass(frozen=True)
class Chances:
    """What a life is made of, from 0 to 1 each.

    Attributes:
        twin: a replica id is used twice.
        put_back: what is put back in one step; the whole machine is `both`.
    """

    twin: float = 0.15
    put_back: float = 0.10
    what: Sequence[str] = PUT_BACK


class Wrong(AssertionError):
    """A promise was broken."""


class Life:
    """One trial."""

    def __init__(self, seed: int, folder: Path, chances: Chances) -> None:
        self.random = Random(seed)
        self.chances = chances
        self.happened: Counter[str] = Counter()
        self.number = 0
        count = self.random.choice((2, 2, 3))
        self.machines = [Machine(rid, folder / f"{rid}.db") for rid in range(1, count + 1)]
        if self.random.random() < chances.twin:
            self.machines.append(Machine(self.random.randint(1, count), folder / "twin.db"))
            self.happened["doubled"] += 1
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
        elif chance < 0.84 + self.chances.put_back:
            self.put_back(machine)
        else:
            self.trim(machine)

    def put_back(self, machine: Machine) -> None:
        what = self.random.choice(self.chances.what)
        machine.put_back(
            self.random.choice(self.kept[id(machine)]),
            target=what != "metadata",
            metadata=what != "target",
        )
        self.happened["put back"] += 1
        self.happened[f"put back: {what}"] += 1
        if self.random.random() < 0.7:
            self.write(machine)

    def write(self, machine: Machine) -> None:
        keys = []
        for _ in range(self.random.randint(1, 4)):
            self.number += 1
            keys.append(b"%d" % self.number)
        written = machine.write(*keys, value=b"%d" % self.number)
        self.happened["acknowledged"] += len(written)
        if not set(written) <= {csn for csn, _ in held(machine)}:
            raise Wrong(f"what was answered is not there: {written}")

    def trim(self, machine: Machine) -> None:
        ruv = machine.state().vectors.ruv
        if ruv:
            rid = self.random.choice(sorted(ruv))
            if machine.trim(str(ruv[rid]), rid):
                self.happened["trimmed"] += 1

    def bring(self, supplier: Machine, consumer: Machine, mode: SessionMode, *, discard: bool) -> None:
        before = held(supplier), held(consumer)
        self.happened["sessions"] += 1
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
            foreign = {each for each in after[1] if each[0] <= ruv.get(Csn(each[0]).rid, "")} - after[0]
            if after[0] - after[1] or foreign:
                raise Wrong(f"green while different: {after[0] - after[1]} {foreign}")


def held(machine: Machine) -> set[tuple[str, bytes | None]]:
    """The changes that a replica shows, with what they say; each has a key of its own, and is there once."""
    entries, [(records, keys)] = (
        machine.entries(),
        machine.conn.execute("select count(*), count(distinct key) from replica_changelog"),
    )
    if records != keys:
        raise Wrong(f"{records} records of {keys} keys: some are double")
    return set(entries.values())


def _run(seeds: Iterable[int], chances: Chances = Chances(), *, enough: tuple[str, int] = ("", 1)) -> str:
    """Live one life after the other; a line that tells what happened.

    Args:
        enough: end as soon as this has happened so often.
    """
    happened: Counter[str] = Counter()
    lives = 0
    for seed in seeds:
        with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
            life = Life(seed, Path(folder), chances)
            try:
                life.run()
            except Wrong as wrong:
                raise Wrong(f"seed {seed}: {wrong}") from wrong
            finally:
                life.close()
            happened += life.happened
        lives += 1
        if happened[enough[0]] >= enough[1]:
            break
    assert [what for what in REACHED if not happened[what]] == []
    told = ", ".join(f"{count} {what}" for what, count in sorted(happened.items()))
    line = f"{lives} random histories to seed {seed}: 0 lost, 0 double, 0 green while different; {told}"
    print(line)
    return line


def test_nothing_acknowledged_goes_unasked_and_green_means_equal() -> None:
    assert _run(range(TRIALS)).startswith(f"{TRIALS} random histories")


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_many_lives() -> None:
    assert _run(range(TRIALS_LONG)).startswith(f"{TRIALS_LONG} random histories")


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_whole_machines_put_back() -> None:
    often = Chances(put_back=0.14, what=("both",))
    assert "put back: both" in _run(
        range(100_000, 100_000 + MACHINES_PUT_BACK), often, enough=("put back: both", MACHINES_PUT_BACK)
    )


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_replica_ids_used_twice() -> None:
    told = _run(range(200_000, 200_000 + DOUBLED), Chances(twin=1.0))
    assert f"{DOUBLED} doubled" in told


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
