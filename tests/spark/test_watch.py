"""What a watch makes of a cluster's executors; a JVM that says what a test wants."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from spark.pool.watch import NEVER_ANY_S, WITHOUT_EXECUTORS_S, Watch

PATIENCE_S = 1e9


class Context:
    """The Java side of a context."""

    def __init__(self, *, is_local: bool = False) -> None:
        self.executors = 0
        self.is_local = is_local

    def isStopped(self) -> bool:
        return False

    def isLocal(self) -> bool:
        return self.is_local

    def getExecutorMemoryStatus(self) -> Any:
        return SimpleNamespace(size=lambda: self.executors + 1)


class Ground:
    """A watch, its clock, and what it looks at."""

    def __init__(self) -> None:
        self.now = 0.0
        self.context = Context()
        self.watch = Watch(patience_s=PATIENCE_S, monotonic=lambda: self.now)
        self.watch.begin()

    def after(self, seconds: float) -> str | None:
        """The verdict so much later, once the JVM has answered."""
        self.now += seconds
        started: Any = SimpleNamespace(
            alive=True,
            session=SimpleNamespace(
                sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: self.context))
            ),
        )
        self.watch.verdict(started)
        time.sleep(0.02)  # its thread answers
        return self.watch.verdict(started)


@pytest.fixture
def ground() -> Iterator[Ground]:
    made = Ground()
    yield made
    made.watch.end()


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
