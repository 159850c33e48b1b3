"""Random batches of competing suppliers against a consumer of dicts, record by record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from spark.formats.csn import Csn
from spark.replication.session_errors import BatchGap, PrevGap, ReplicaBusy, SessionEnded, StaleEpoch
from spark.targets.connection import Target
from tests.spark.replication.consumer_side import OTHER, SESSION, ConsumerSide, Row, change, consumer_side
from tests.spark.replication.replica_tables import csn

RIDS = (1, 2, 3)
LENGTH = 40
POISONED = {2: 7, 3: 20}
"""By RID: the record that no consumer of today keeps, until it is sent as one that can be kept."""


def universe(random: Random) -> dict[int, list[Row]]:
    """All records that were ever made, by RID in their order; few keys, so that replicas meet in them."""
    made: dict[int, list[Row]] = {}
    for rid in RIDS:
        prev = None
        made[rid] = []
        for number in range(LENGTH):
            value = None if random.random() < 0.2 else b"%d/%d" % (rid, number)
            row = change(
                csn(number * 3 + random.randrange(3), rid), prev, key=b"%d" % random.randrange(6), value=value
            )
            made[rid].append(row)
            prev = row[0]
    return made


class Refused(Exception):
    """The model finds a hole."""


@dataclass
class Model:
    """What the consumer must hold; `at` is how many records of each replica are here."""

    at: dict[int, int] = field(default_factory=lambda: dict.fromkeys(RIDS, 0))
    log: dict[Csn, Row] = field(default_factory=dict)
    entries: dict[bytes, tuple[bytes | None, Csn]] = field(default_factory=dict)
    letters: dict[int, Csn] = field(default_factory=dict)

    def apply(self, rows: list[Row], made: dict[int, list[Row]]) -> tuple[int, int, list[Csn], int]:
        """Applied, covered, rejected, halted; one record after the other.

        Raises: Refused: nothing has changed.
        """
        after = replace(
            self, at=dict(self.at), log=dict(self.log), entries=dict(self.entries), letters=dict(self.letters)
        )
        counts = after._all(rows, made)
        self.at, self.log, self.entries, self.letters = after.at, after.log, after.entries, after.letters
        return counts

    def _all(self, rows: list[Row], made: dict[int, list[Row]]) -> tuple[int, int, list[Csn], int]:
        applied = covered = halted = 0
        rejected: list[Csn] = []
        stopped: set[int] = set()
        for row in rows:
            at, prev, kind = row[:3]
            rid = at.rid
            if at in self.log:
                covered += 1
            elif rid in stopped:
                halted += 1
            elif prev != (made[rid][self.at[rid] - 1][0] if self.at[rid] else None):
                if rid not in self.letters or prev is None or prev < self.letters[rid]:
                    raise Refused
                stopped.add(rid)
                halted += 1
            elif kind != "CHANGE":
                stopped.add(rid)
                rejected.append(at)
                self.letters[rid] = at
            else:
                applied += 1
                self._keep(row)
        return applied, covered, rejected, halted

    def _keep(self, row: Row) -> None:
        at, _, _, _, key, value = row
        self.log[at] = row
        self.at[at.rid] += 1
        if at > self.entries.get(key, (None, ""))[1]:
            self.entries[key] = (value, at)
        if self.letters.get(at.rid, at) <= at:
            self.letters.pop(at.rid, None)

    def ruv(self, made: dict[int, list[Row]]) -> dict[int, Csn]:
        """The greatest CSN of each replica."""
        return {rid: made[rid][at - 1][0] for rid, at in self.at.items() if at}


def draw(random: Random, model: Model, made: dict[int, list[Row]]) -> list[Row]:
    """A batch: for some replicas a piece around where the consumer is, sometimes with a hole."""
    rows: list[Row] = []
    for rid in random.sample(RIDS, random.randint(1, 3)):
        at = model.at[rid]
        first = max(0, at - random.choice((0, 0, 0, 1, 4)))
        if random.random() < 0.06:
            first = at + 1
        piece = made[rid][first : first + random.randint(1, 6)]
        if len(piece) > 2 and random.random() < 0.05:
            del piece[random.randrange(1, len(piece) - 1)]
        poisoned = made[rid][POISONED[rid]][0] if rid in POISONED and random.random() < 0.7 else None
        rows += [(*row[:2], "LATER", *row[3:]) if row[0] == poisoned else row for row in piece]
    return sorted(rows, key=lambda row: row[0]) if random.random() < 0.5 else rows


@dataclass
class Supplier:
    """One of two that compete for the lease."""

    session_id: str
    rid: int
    epoch: int = 0
    seq: int = 0
    last: list[Row] = field(default_factory=list)


@pytest.fixture
def side(place: Target) -> Iterator[ConsumerSide]:
    """An empty consumer."""
    with consumer_side(place) as found:
        yield found


def _turn(random: Random, side: ConsumerSide, model: Model, made: dict[int, list[Row]], who: Supplier) -> str:
    """One request of one supplier; what became of it."""
    choice = random.random()
    if choice < 0.12:
        if random.random() < 0.5:
            side.expire()
        try:
            who.epoch, who.seq = side.acquire(who.session_id, rid=who.rid).epoch, 0
        except ReplicaBusy:
            return "busy"
        return "acquired"
    try:
        if choice < 0.2 and who.last:
            answer = side.apply(who.last, epoch=who.epoch, seq=who.seq, session_id=who.session_id)
            assert answer.replayed
            assert (answer.applied, len(who.last)) == (
                0,
                answer.covered + len(answer.rejected) + answer.halted,
            )
            return "replayed"
        if choice < 0.25:
            side.apply([], epoch=who.epoch, seq=who.seq + 2, session_id=who.session_id)
        return _batch(random, side, model, made, who)
    except (BatchGap, StaleEpoch, SessionEnded) as refused:
        who.last = []
        return refused.code


def _batch(
    random: Random, side: ConsumerSide, model: Model, made: dict[int, list[Row]], who: Supplier
) -> str:
    rows = draw(random, model, made)
    before = replace(model)
    try:
        answer = side.apply(rows, epoch=who.epoch, seq=who.seq + 1, session_id=who.session_id)
    except PrevGap:
        with pytest.raises(Refused):
            model.apply(rows, made)
        return "prev-gap"
    expected = before.apply(rows, made)
    model.__dict__.update(before.__dict__)
    rejected = [each.csn for each in answer.rejected]
    assert (answer.applied, answer.covered, sorted(rejected), answer.halted) == (
        *expected[:2],
        sorted(expected[2]),
        expected[3],
    )
    assert answer.ruv == model.ruv(made)
    who.seq, who.last = who.seq + 1, rows
    return "applied" if not rejected else "rejected"


def _check(side: ConsumerSide, model: Model, made: dict[int, list[Row]]) -> None:
    assert side.ruv() == model.ruv(made)
    assert side.logged() == sorted(model.log, key=lambda at: (at.rid, at))
    assert side.entries() == {(b"db", key): value for key, value in model.entries.items()}
    opened = {row[3]: row[2] for row in side.rows("dead_letters") if row[-1] is None}
    assert opened == model.letters


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))]
)
def test_random_batches_of_competing_suppliers_end_where_the_model_ends(
    side: ConsumerSide, seed: int
) -> None:
    seen = _run(side, seed, turns=150)
    assert {"applied", "acquired", "replayed"} <= seen


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_random_batches_end_where_the_model_ends(side: ConsumerSide, seed: int) -> None:
    _run(side, seed, turns=1_000)


def _run(side: ConsumerSide, seed: int, *, turns: int) -> set[str]:
    random = Random(seed)
    made, model = universe(random), Model()
    suppliers = [Supplier(SESSION, 21), Supplier(OTHER, 22)]
    suppliers[0].epoch = side.acquire(SESSION, rid=21).epoch
    seen = set()
    for _ in range(turns):
        who = random.choice(suppliers)
        if who.epoch == 0:
            side.expire()
            who.epoch = side.acquire(who.session_id, rid=who.rid).epoch
        seen.add(_turn(random, side, model, made, who))
        _check(side, model, made)
    return seen
