"""What stands beside the rows: read for many units at once, of each unit whole, and never many in memory."""

from __future__ import annotations

import itertools
import random

import pytest

from spark.events.catalog import read_catalog
from spark.events.feed.beside import AHEAD_MAX, Beside
from spark.events.feed.reading import Asked, read_page
from tests.spark.events.catalogs import Catalogs
from tests.spark.events.feed.random_logs import BASE, ORIGIN, History, store

CASES = 300


class Log:
    """Numbers under seqnos, which are read as a server would read them; each reading is remembered."""

    def __init__(self, seqnos: list[int]) -> None:
        self.items = [(seqno, at) for at, seqno in enumerate(sorted(seqnos))]
        self.readings: list[tuple[int | None, int]] = []
        """(limit, how many came)."""

    def read(self, after: int, upto: int, limit: int | None) -> list[tuple[int, int]]:
        found = [each for each in self.items if after < each[0] <= upto][:limit]
        self.readings.append((limit, len(found)))
        return found


@pytest.mark.parametrize("seed", range(CASES))
def test_every_unit_has_its_own_whatever_is_read_ahead(seed: int) -> None:
    rng = random.Random(seed)
    syncs = sorted(rng.sample(range(1, 60), rng.randint(2, 20)))
    log = Log([rng.randint(0, 64) for _ in range(rng.choice([0, 3, 30, 200]))])
    most = rng.choice([1, 2, 5, 40, 1_000])
    beside = Beside(log.read, syncs[-1], most=most)
    units = list(itertools.pairwise(syncs))
    for after, upto in units:
        wanted = [item for seqno, item in log.items if after < seqno <= upto]
        assert beside.of_unit(after, upto) == wanted
    assert all(limit == most for limit, _count in log.readings[:1]), "the first look is bounded"
    assert len(log.readings) <= len(units) + 1, "no unit is asked for twice, but where the looks ahead end"


def test_where_few_stand_beside_the_rows_one_look_is_enough() -> None:
    log = Log([5, 5, 250, 999])
    beside = Beside(log.read, 1_000)
    assert [beside.of_unit(at, at + 10) for at in range(0, 1_000, 10)].count([]) == 97
    assert log.readings == [(AHEAD_MAX, 4)]


def test_a_unit_of_very_many_is_whole_and_ends_the_looks_ahead() -> None:
    log = Log([1] * 30 + [2] * 30)
    beside = Beside(log.read, 3, most=10)
    assert [len(beside.of_unit(at, at + 1)) for at in range(3)] == [30, 30, 0]
    assert log.readings == [(10, 10), (None, 30), (None, 30), (None, 0)]


@pytest.mark.postgresql
def test_a_node_with_more_events_and_values_than_are_read_ahead(catalogs: Catalogs) -> None:
    """One unit of more events than a look has, then many units of sequences that fill several looks."""
    node = catalogs.empty()
    first, many = BASE + 1, AHEAD_MAX + 100
    last = first + many + 1
    made = History(began={10: 1}, ended={10: 2}, committed={10})
    made.config = [(first + 1 + number, f"STORE_SET {number}") for number in range(many)]
    made.syncs = [(first, 0), *((last + number, 4) for number in range(50))]
    made.sequences = [(last + number, 7, 100 * number + each) for number in range(50) for each in range(60)]
    store(node, made)
    with node.connect(read_only=True) as conn:
        catalog = read_catalog(conn, node.cluster)
        with conn.transaction(read_only=True):
            page = read_page(conn, catalog, Asked(ORIGIN, first))
            found = [change for block in page.blocks for change in block]
    details = [(change.kind, change.seqno, change.detail or {}) for change in found]
    assert [detail["type"] for kind, _, detail in details if kind == "EVENT"] == [
        kind for _, kind in made.config
    ]
    values = [(seqno, 7, detail["last_value"]) for kind, seqno, detail in details if kind == "SEQUENCE"]
    assert sorted(values) == made.sequences
    assert [seqno for seqno, _, _ in values] == sorted(seqno for seqno, _, _ in values)
    counts = [detail["records"] for kind, _, detail in details if kind == "SYNC"]
    assert counts == [many + 60] + [60] * 49
