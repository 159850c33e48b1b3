"""What lost against what, beside a model that knows who knew what; and the history of one key."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from spark.replication.feed.key_history import KeyChange, Outcome, read_key_history
from spark.replication.feed.overwritten import Verdict, read_overwritten
from tests.spark.replication.history_sites import DATABASE, Machine, session

Pair = tuple[str, str]
STEPS = 40


class World:
    """Three replicas that write the same few keys; the model notes at each write what its replica had."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.machines = [Machine(rid, folder / f"{seed}-{rid}.db") for rid in (1, 2, 3)]
        self.known: dict[str, set[str]] = {}
        """Of each change all that its replica had when it was written."""
        self.key_of: dict[str, bytes] = {}
        self.had: dict[int, set[str]] = {machine.rid: set() for machine in self.machines}
        self.step_of: dict[int, dict[str, int]] = {machine.rid: {} for machine in self.machines}
        self.trimmed: dict[int, set[str]] = {machine.rid: set() for machine in self.machines}

    def run(self) -> None:
        for step in range(1, STEPS):
            machine = self.draw.choice(self.machines)
            act = self.draw.choice([self.write, self.write, self.meet, self.meet, self.trim])
            act(machine)
            for each in self.machines:
                self.note(each, step)

    def write(self, machine: Machine) -> None:
        key = b"k%d" % self.draw.randrange(4)
        before = set(self.had[machine.rid])
        for csn in machine.write(key, value=b"v"):
            self.known[csn], self.key_of[csn] = before, key

    def meet(self, machine: Machine) -> None:
        other = self.draw.choice([each for each in self.machines if each is not machine])
        session(machine, other, batches_max=self.draw.choice([1, None]), trusted=(1, 2, 3))

    def trim(self, machine: Machine) -> None:
        if self.draw.random() < 0.3 and (logged := sorted(machine.log())):
            csn = self.draw.choice(logged)
            machine.trim(csn, int(csn[12:16], 16))
            self.trimmed[machine.rid] |= set(logged) - machine.log()

    def note(self, machine: Machine, step: int) -> None:
        """The clock of the target is the number of the step: what comes in one step comes in one second."""
        for csn in machine.log() - self.had[machine.rid]:
            self.had[machine.rid].add(csn)
            self.step_of[machine.rid][csn] = step
            machine.conn.execute(
                "update replica_changelog set logged_at_s = :step where csn = :csn",
                {"step": step, "csn": csn},
            )

    def expected(self, machine: Machine) -> dict[Pair, bool | None]:
        """Who lost against whom here, and whether the winner had the loser; None: its record is not here."""
        found: dict[Pair, bool | None] = {}
        for key in set(self.key_of.values()):
            csns = sorted(csn for csn in self.had[machine.rid] if self.key_of[csn] == key)
            here = [csn for csn in csns if csn in machine.log()]
            for at, csn in enumerate(here):
                winner = here[at + 1] if at + 1 < len(here) else csns[-1]
                if winner > csn and winner[12:16] != csn[12:16]:
                    is_here = at + 1 < len(here)
                    found[csn, winner] = csn in self.known[winner] if is_here else None
        return found


def _check(world: World, machine: Machine, seen: Counter[str]) -> None:
    expected, steps = world.expected(machine), world.step_of[machine.rid]
    after, found = "0" * 20, []
    while True:
        page = read_overwritten(
            machine.conn, after=after, verdicts=list(Verdict), database=DATABASE, rows_max=3
        )
        found += page.found
        if not page.more:
            break
        after = page.found[-1].loser
    assert {(each.loser, each.winner) for each in found} == set(expected)
    assert [each.loser for each in found] == sorted(each.loser for each in found)
    for each in found:
        was_known = expected[each.loser, each.winner]
        seen[each.verdict] += 1
        if each.verdict is Verdict.CONCURRENT:
            assert was_known is False, each
        elif each.verdict is Verdict.SEEN:
            assert was_known is True, each
        elif was_known is not None:  # nothing that could be told is kept back
            came, by_came = steps[each.loser], steps[each.winner]
            assert came <= by_came
            assert came == by_came or each.winner[12:16] != f"{machine.rid:04x}"
    alone = read_overwritten(
        machine.conn, after="0" * 20, verdicts=[Verdict.CONCURRENT], database=None, rows_max=500
    )
    assert [each.loser for each in alone.found] == [
        each.loser for each in found if each.verdict is Verdict.CONCURRENT
    ]


def _run(folder: Path, seeds: range) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        world = World(folder, seed)
        try:
            world.run()
            for machine in world.machines:
                _check(world, machine, seen)
                _check_histories(world, machine)
        finally:
            for machine in world.machines:
                machine.close()
    return seen


def _check_histories(world: World, machine: Machine) -> None:
    """Every change of each key that is here, the greatest first, with what has overwritten it."""
    for key in set(world.key_of.values()):
        csns = sorted((csn for csn in world.had[machine.rid] if world.key_of[csn] == key), reverse=True)
        before, changes = None, list[KeyChange]()
        while True:
            page = read_key_history(
                machine.conn,
                DATABASE,
                key,
                before=before,
                rows_max=2,
                bytes_max=world.draw.choice([1, 10**6]),
            )
            changes += page.changes
            if not page.more:
                break
            before = str(page.changes[-1].csn)
        here = [csn for csn in csns if csn in machine.log()]
        assert [change.csn for change in changes] == here
        for change, newer in zip(changes, [csns[0] if csns else None, *here], strict=False):
            is_current = change.csn == csns[0]
            assert change.outcome is (Outcome.WON if is_current else Outcome.OVERWRITTEN)
            assert change.overwritten_by == (None if is_current else newer)
            assert change.payload == b"v"


def test_who_lost_and_who_knew_beside_the_model(tmp_path: Path) -> None:
    seen = _run(tmp_path, range(24))
    assert min(seen[verdict] for verdict in Verdict) > 60, seen


@pytest.mark.long
def test_the_same_over_many_histories(tmp_path: Path) -> None:
    seen = _run(tmp_path, range(1_000, 2_000))
    assert min(seen[verdict] for verdict in Verdict) > 1_000, seen
