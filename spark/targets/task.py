"""A list of units as one task of Spark: done one after the other on one connection, every end a value.

Rules:
- nothing but the death of the worker makes a task fail: Spark would repeat what cannot succeed;
- after an error of the target the rest of the list is not run: the caller hands it in again;
- the connection is opened here and closed at the end: none outlives its task. Work on files has none.
"""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spark.targets.connection import Connection
from spark.targets.errors import TargetError
from spark.targets.work import AnyWork, UnitWork, do_unit, open_worker

ReportKind = Literal["DONE", "NOT_RUN", "BROKEN", "RAN"]
NO_TICKET = 0
"""Of a report of the task itself; tickets of units begin with one."""


@dataclass(frozen=True, slots=True)
class Task:
    """Units of one work; everything inside is pickled already, so that a foreign object spoils only itself.

    Args:
        work: a UnitWork, or a FileWork.
        units: ticket and unit.
    """

    number: int
    work: bytes
    units: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """How one unit of a task ended.

    Args:
        content: DONE: result, error and seconds, pickled; BROKEN: what was raised, in one line; RAN: a
            TaskRun, pickled.
    """

    task: int
    ticket: int
    kind: ReportKind
    content: bytes = b""


Deliver = Callable[[Sequence[Report]], None]
"""Takes the reports of a task that has ended; must not raise."""


@dataclass(frozen=True, slots=True)
class TaskRun:
    """What a task was for Spark, and what it took of its worker.

    Args:
        group, stage: of Spark, as its UI and its event log have them.
        memory_bytes: the worker's highest so far, of all tasks that it has run.
    """

    group: str
    stage: int
    seconds: float
    cpu_seconds: float
    memory_bytes: int


def pack(value: object) -> bytes:
    """Pickle something for the other side.

    Raises: Unsendable.
    """
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        raise Unsendable(f"{type(value).__name__} cannot be sent to a worker: {error}") from error


class Unsendable(Exception):
    """A value that pickle refuses: a mistake in a program, the same at every try."""


def run_task(task: Task) -> list[Report]:
    """Do the units of a task in their order; one report for each."""
    try:
        work: AnyWork[Any, Any] = pickle.loads(task.work)  # noqa: S301 - our own driver wrote it
        units = [pickle.loads(content) for _, content in task.units]  # noqa: S301
    except Exception as error:  # noqa: BLE001 - the runner of this side: an import may raise anything
        return [Report(task.number, ticket, "BROKEN", _line(error)) for ticket, _ in task.units]
    worker = _Worker(work)
    try:
        return _reports(task, worker, units)
    finally:
        worker.close()


def _reports(task: Task, worker: "_Worker", units: Sequence[Any]) -> list[Report]:
    reports: list[Report] = []
    for (ticket, _), unit in zip(task.units, units, strict=True):
        try:
            error, content = worker.run(unit)
        except Exception as broken:  # noqa: BLE001 - as a failed task Spark would repeat it, and all beside it
            reports.append(Report(task.number, ticket, "BROKEN", _line(broken)))
            break
        reports.append(Report(task.number, ticket, "DONE", content))
        if error is not None:
            break
    left = task.units[len(reports) :]
    return reports + [Report(task.number, ticket, "NOT_RUN") for ticket, _ in left]


class _Worker:
    """The connection of one task, opened by the first unit that needs one."""

    def __init__(self, work: AnyWork[Any, Any]) -> None:
        self._work = work
        self._connection: Connection | None = None

    def run(self, unit: Any) -> tuple[TargetError | None, bytes]:
        """Do one unit; its error, and the report's content."""
        outcome = do_unit(self._work, self._opened, unit)
        return outcome.error, pack((outcome.result, outcome.error, outcome.elapsed_s))

    def close(self) -> None:
        """Close what was opened."""
        if self._connection is not None:
            self._connection.close()

    def _opened(self) -> Connection:
        assert isinstance(self._work, UnitWork), "work on files asks for no connection"
        if self._connection is None or self._connection.closed:
            self._connection = open_worker(self._work)
        return self._connection


def _line(error: BaseException) -> bytes:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500].encode()
