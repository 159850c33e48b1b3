"""Who does units in the comparison of engines: threads, a pool of processes, and the pooled Spark session.

The threads and Spark are the service's own. The pool of processes is what somebody would write instead of
Spark on one machine: concurrent.futures over the same units, with no watch, no cancel and no repeat.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from app.clock import SystemClock
from app.jobs.engines.engine import ANYBODY, Borrower, Engine, EngineLease, InlineEngine
from app.jobs.engines.spark_service import SparkService
from app.kit.spark.settings import SparkSettings
from app.settings import Settings
from spark.targets.connection import Connection
from spark.targets.work import AnyWork, Outcome, UnitWork, do_unit, open_worker

Name = Literal["threads", "processes", "spark"]
NAMES: Final[tuple[Name, ...]] = ("threads", "processes", "spark")
AHEAD: Final = 2
"""Units that a process finds waiting, for each that it works at."""
Unit = TypeVar("Unit")
Result = TypeVar("Result")
Argument = TypeVar("Argument")
_connections: dict[bytes, Connection] = {}


class ProcessLease(EngineLease[Unit, Result]):
    """Units of one work, over the processes."""

    def __init__(self, pool: ProcessPoolExecutor, work: AnyWork[Unit, Result], ahead: int) -> None:
        self._pool = pool
        self._work = pickle.dumps(work)
        self._ahead = ahead
        self._running: set[Future[Outcome[Unit, Result]]] = set()

    def map(self, units: Iterator[Unit]) -> Iterator[Outcome[Unit, Result]]:
        """Run units as they are drawn."""
        is_drawn = False
        while self._running or not is_drawn:
            while not is_drawn and len(self._running) < self._ahead:
                unit = next(units, None)
                is_drawn = unit is None
                if unit is not None:
                    self._running.add(self._pool.submit(_in_process, self._work, unit))
            if self._running:
                ended, self._running = wait(self._running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in ended)

    def cancel(self) -> None:
        """What has not begun does not begin; there is no way to end what runs."""
        for future in list(self._running):
            future.cancel()

    def close(self) -> None:
        """The processes stay."""


class ProcessEngine:
    """Lends the processes."""

    name: Literal["INLINE", "SPARK"] = "INLINE"

    def __init__(self, pool: ProcessPoolExecutor, cores: int) -> None:
        self._pool = pool
        self._cores = cores

    @contextmanager
    def lease(
        self, work: AnyWork[Unit, Result], *, workers: int, borrower: Borrower = ANYBODY
    ) -> Iterator[EngineLease[Unit, Result]]:
        """Lend as many as a lease of the service would get."""
        yield ProcessLease(self._pool, work, AHEAD * min(workers, self._cores))


class ProcessSpread:
    """Runs the tasks of an erasure's plan on the processes."""

    def __init__(self, pool: ProcessPoolExecutor, cores: int) -> None:
        self._pool = pool
        self.parallelism = cores

    def each(self, function: Callable[[Argument], Result], arguments: Sequence[Argument]) -> list[Result]:
        """Run a task for each argument."""
        return list(self._pool.map(function, arguments))

    def exchange(
        self,
        function: Callable[[Argument], Iterable[tuple[int, bytes]]],
        arguments: Sequence[Argument],
        *,
        parts: int,
        gather: Callable[[Iterable[bytes]], bytes],
    ) -> list[bytes]:
        """Run a task for each argument, and one for each part that anything was made for."""
        made: dict[int, list[bytes]] = {}
        for rows in self._pool.map(_listed, [function] * len(arguments), arguments):
            for part, content in rows:
                made.setdefault(part % parts, []).append(content)
        return list(self._pool.map(gather, made.values()))


@dataclass(frozen=True)
class Crew:
    """One of those who work, as the cases need it.

    Attributes:
        processes: of the pool of processes. spark: of Spark.
    """

    name: Name
    engine: Engine
    cores: int
    processes: ProcessPoolExecutor | None = None
    spark: SparkService | None = None


def crew(name: Name, *, cores: int, scratch: Path) -> AbstractContextManager[Crew]:
    """Bring one of them up; the end of the `with` block ends it."""
    makers = {"threads": _threads, "processes": _processes, "spark": _spark}
    return makers[name](cores, scratch)


@contextmanager
def _threads(cores: int, _scratch: Path) -> Iterator[Crew]:
    yield Crew("threads", InlineEngine(SystemClock()), cores)


@contextmanager
def _processes(cores: int, _scratch: Path) -> Iterator[Crew]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=cores, mp_context=context) as pool:
        yield Crew("processes", ProcessEngine(pool, cores), cores, processes=pool)


@contextmanager
def _spark(cores: int, scratch: Path) -> Iterator[Crew]:
    settings = Settings(data_dir=scratch / "spark", spark=SparkSettings(cores=cores))
    service = SparkService(settings, SystemClock(), instance_id="benchmark")
    service.pool.start()
    try:
        yield Crew("spark", service.engine, cores, spark=service)
    finally:
        service.stop(within_s=30.0)


def _in_process(packed: bytes, unit: Any) -> Outcome[Any, Any]:
    work: AnyWork[Any, Any] = pickle.loads(packed)
    return do_unit(work, lambda: _connection(packed, work), unit)


def _connection(packed: bytes, work: AnyWork[Any, Any]) -> Connection:
    """One connection for each work in a process, until the process ends."""
    assert isinstance(work, UnitWork), "work on files asks for no connection"
    if packed not in _connections:
        _connections[packed] = open_worker(work)
    return _connections[packed]


def _listed(
    function: Callable[[Argument], Iterable[tuple[int, bytes]]], argument: Argument
) -> list[tuple[int, bytes]]:
    return list(function(argument))
