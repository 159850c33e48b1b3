"""What a watch makes of a cluster's executors; a JVM that says what a test wants."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark.pool.watch import EXECUTORS_EVERY_S, NEVER_ANY_S, WITHOUT_EXECUTORS_S, Watch

PATIENCE_S = 1e9
ANSWER_S = 30.0


class Summary:
    """One executor as Scala shows it: each field is a call."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __getattr__(self, name: str) -> Any:
        values = {
            "id": "driver" if self.number == 0 else str(self.number),
            "hostPort": f"10.0.0.{self.number}:4040",
            "totalCores": 0 if self.number == 0 else 2,
            "activeTasks": 1,
            "maxMemory": 1_000,
            "memoryUsed": 10,
        }
        return lambda: values[name]


class Summaries:
    """A Scala iterator over the driver and its executors."""

    def __init__(self, executors: int) -> None:
        self.left = [Summary(number) for number in range(executors + 1)]

    def iterator(self) -> Summaries:
        return self

    def hasNext(self) -> bool:
        return bool(self.left)

    def next(self) -> Summary:
        return self.left.pop(0)


class Context:
    """The Java side of a context."""

    def __init__(self, *, is_local: bool = False) -> None:
        self.executors = 0
        self.is_local = is_local
        self.lists = 0

    def isStopped(self) -> bool:
        return False

    def isLocal(self) -> bool:
        return self.is_local

    def statusStore(self) -> Any:
        self.lists += 1
        return SimpleNamespace(executorList=lambda _active_only: Summaries(self.executors))

    def getExecutorMemoryStatus(self) -> Any:
        return SimpleNamespace(size=lambda: self.executors + 1)


class Ground:
    """A watch, its clock, and what it looks at."""

    def __init__(self, *, patience_s: float = PATIENCE_S) -> None:
        self.now = 0.0
        self.context = Context()
        self.watch = Watch(patience_s=patience_s, monotonic=lambda: self.now)
        self.watch.begin()

    def after(self, seconds: float) -> str | None:
        """The verdict so much later, once the JVM and the cluster have answered."""
        self.now += seconds
        started = self.started()
        self.watch.verdict(started)
        for asking in (self.watch._asking, self.watch._asking_why):
            assert asking is None or wait([asking], ANSWER_S).done, "who asks has not come back"
        return self.watch.verdict(started)

    def started(self) -> Any:
        """The session of a JVM that runs."""
        started: Any = SimpleNamespace(
            alive=True,
            log_file=Path("/nonexistent"),
            jvm=SimpleNamespace(log_begin=0),
            session=SimpleNamespace(
                sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: self.context))
            ),
        )
        return started


@pytest.fixture
def ground() -> Iterator[Ground]:
    made = Ground()
    yield made
    made.watch.end()


def test_a_service_that_was_stopped_for_a_while_does_not_blame_the_jvm() -> None:
    """SIGSTOP and SIGCONT of the service, or a frozen container: its JVM, in good health, was replaced."""
    ground, silent = Ground(patience_s=10.0), threading.Event()
    try:
        ground.context.isStopped = silent.wait  # type: ignore[method-assign]
        ground.watch.verdict(ground.started())
        ground.now += 15
        assert ground.watch.verdict(ground.started()) is None
        verdicts = []
        for _ in range(60):
            ground.now += 0.25
            verdicts.append(ground.watch.verdict(ground.started()))
        [told] = {*verdicts} - {None}
        assert told == "the JVM has not answered for 10 s"
        assert 9.0 < verdicts.index(told) * 0.25 < 12.0
    finally:
        silent.set()
        ground.watch.end()


def test_cluster_that_takes_every_executor_away_is_given_up_soon(ground: Ground) -> None:
    ground.context.executors = 2
    assert ground.after(2) is None
    assert ground.watch.executors == 2
    ground.context.executors = 0
    assert ground.after(2) is None
    assert ground.watch.executors == 0
    assert ground.after(WITHOUT_EXECUTORS_S - 4) is None
    assert ground.after(5) == "the cluster gives no executor"


def test_executor_that_comes_back_in_time_changes_nothing(ground: Ground) -> None:
    ground.context.executors = 1
    ground.after(2)
    ground.context.executors = 0
    ground.after(WITHOUT_EXECUTORS_S - 5)
    ground.context.executors = 1
    ground.after(2)
    ground.context.executors = 0
    assert ground.after(WITHOUT_EXECUTORS_S - 5) is None


def test_cluster_that_has_given_none_yet_is_waited_for_much_longer(ground: Ground) -> None:
    assert ground.after(WITHOUT_EXECUTORS_S * 5) is None
    assert ground.after(NEVER_ANY_S) == "the cluster gives no executor"


def test_next_context_is_not_blamed_for_the_last_one(ground: Ground) -> None:
    ground.context.executors = 1
    ground.after(2)
    ground.context.executors = 0
    ground.after(15)
    ground.watch.begin()
    assert ground.watch.executors is None
    assert ground.after(WITHOUT_EXECUTORS_S * 2) is None


def test_local_context_has_no_executors_to_miss(ground: Ground) -> None:
    ground.context.is_local = True
    assert ground.after(NEVER_ANY_S * 2) is None
    assert ground.watch.executors is None


def test_executors_are_looked_at_one_by_one_every_few_seconds(ground: Ground) -> None:
    ground.context.executors = 2
    assert ground.after(1.0) is None
    first, second = ground.watch.listed  # the driver has no cores: it runs no task
    assert (first.id, first.address, first.cores, first.tasks) == ("1", "10.0.0.1:4040", 2, 1)
    assert (second.id, second.memory, second.memory_used) == ("2", 1_000, 10)
    ground.context.executors = 1
    assert ground.after(1.0) is None
    assert (ground.context.lists, len(ground.watch.listed)) == (1, 2)
    assert ground.after(EXECUTORS_EVERY_S) is None
    assert (ground.context.lists, len(ground.watch.listed)) == (2, 1)
    ground.watch.begin()
    assert ground.watch.listed == ()
