"""Connections are shared evenly, and nobody waits long for a process that hangs."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from app.kit.shared_rates import SharedTable
from app.kit.turns import FRESH_S, NOT_THERE, NUMBER_MAX, PATIENCE_S, SLACK, STEP_S, SharedTurns, Turn

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def table() -> Iterator[SharedTable]:
    made = SharedTable.create()
    yield made
    made.close()


class Processes:
    """Some processes and their clock, which only a sleep or the test moves."""

    def __init__(self, table: SharedTable, number: int) -> None:
        self.now = 100.0
        self.open = [0] * number
        self.turns = SharedTurns(table.fd)
        self.each = [
            Turn(
                SharedTurns(table.fd),
                number + 1,
                lambda number=number: self.open[number],  # type: ignore[misc]
                clock=lambda: self.now,
                sleep=self._sleep,
            )
            for number in range(number)
        ]

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def connect(self, order: list[int]) -> int:
        """One comes; they are woken in an order, until one takes it. Who has."""
        while True:
            for number in order:
                if self.each[number].has_come():
                    self.add(number, 1)
                    return number

    def add(self, number: int, count: int) -> None:
        self.open[number] += count
        self.each[number].tell()


def test_who_is_always_first_takes_no_more_than_the_others(table: SharedTable) -> None:
    processes = Processes(table, 3)
    for _ in range(60):
        processes.connect([0, 1, 2])
    assert max(processes.open) - min(processes.open) <= SLACK


@pytest.mark.parametrize("seed", range(20))
def test_shares_stay_even_while_some_leave(table: SharedTable, seed: int) -> None:
    source = random.Random(seed)
    processes = Processes(table, source.randint(2, 5))
    numbers = list(range(len(processes.open)))
    for _ in range(300):
        taken = processes.connect(source.sample(numbers, len(numbers)))
        assert processes.open[taken] < min(processes.open) + SLACK + 1, processes.open
        left = source.choice(numbers)
        if processes.open[left] and source.random() < 0.4:
            processes.add(left, -1)


def test_process_that_hangs_is_waited_for_no_longer_than_its_patience(table: SharedTable) -> None:
    processes = Processes(table, 2)
    processes.add(0, 10)
    for _ in range(3):
        processes.now += 2 * FRESH_S
        began = processes.now
        assert processes.connect([0]) == 0
        assert PATIENCE_S - STEP_S <= processes.now - began <= PATIENCE_S + 2 * STEP_S


def test_nobody_waits_for_a_process_that_has_ended(table: SharedTable) -> None:
    processes = Processes(table, 2)
    processes.add(0, 10)
    processes.turns.tell(2, NOT_THERE)
    assert processes.each[0].has_come()
    assert processes.now == 100.0
    processes.each[1].tell()
    assert not processes.each[0].has_come()


def test_one_process_alone_takes_all(table: SharedTable) -> None:
    alone = Processes(table, 1)
    for _ in range(10):
        alone.connect([0])
    assert (alone.open, alone.now) == ([10], 100.0)
    assert alone.turns.beside(NUMBER_MAX) == [10]
