"""What was handed in, what is under way, what has ended: the one state of the exchange, under one lock.

Invariants:
- a unit is waiting, in one flight, or ended; an outcome that comes for a unit which is in no flight any more
  is dropped (the unit's next run tells the same again);
- a flight's tasks count at their places until their reports come, or the flight ends;
- nothing here waits for Spark, and nothing here raises in pyspark's threads.
"""

import pickle
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from spark.exchange.errors import TaskBroken, UnitsLost
from spark.exchange.gather import Gathered, Pending, Waiting, gather, has_room
from spark.exchange.use import SparkUse
from spark.pool.errors import LeaseRefused, SparkError, SparkJobCancelled, SparkLost
from spark.pool.snapshot import JobClass
from spark.targets.errors import TargetAuthFailed, TargetCancelled
from spark.targets.task import Report, Task
from spark.targets.work import Outcome

CANCELLED = "the job stops"
NAMED_MAX = 5
"""Leases that the description of a flight names."""


@dataclass(frozen=True, slots=True)
class ExchangeLimits:
    """The exchange's limits.

    Args:
        task_s: how much work is made one task.
        ahead_max: units of one lease that may wait or run.
        tasks_per_core: tasks in one job of Spark, for each that runs at a time.
        flight_bytes: of the units in one: all that run at a time have all of them in memory.
        gather_s: how long a dispatcher that has a slot waits for more units.
        alone_s: the same where nobody but one lease is served: it hands its units in without a pause.
        losses_max: jobs of Spark that may end badly with a unit inside.
        again_max: how often a unit is handed in again for any reason.
    """

    task_s: float = 1.5
    ahead_max: int = 128
    tasks_per_core: int = 4
    flight_bytes: int = 8 * 2**20
    gather_s: float = 0.015
    alone_s: float = 0.002
    losses_max: int = 3
    again_max: int = 100


@dataclass(eq=False)
class LeaseState(Waiting):
    """What the board keeps of one lease."""

    work: bytes = b""
    name: str = ""
    use: SparkUse = field(default_factory=SparkUse)
    under_way: dict[int, tuple[Pending, "Flight"]] = field(default_factory=dict)
    ended: deque[Outcome[Any, Any]] = field(default_factory=deque)
    failure: TaskBroken | UnitsLost | LeaseRefused | None = None
    is_cancelled: bool = False
    is_closed: bool = False

    @property
    def load(self) -> int:
        """Units that have no outcome yet."""
        return len(self.units) + len(self.under_way)

    @property
    def drawn(self) -> int:
        """Units whose job has not seen their outcome yet: nothing of them is charged to its throttle."""
        return self.load + len(self.ended)


@dataclass(eq=False)
class Flight:
    """One job of Spark: who is in it, and how to cancel it.

    Args:
        open_tasks: those that have not reported, with their places.
        leases: whose units each task holds.
        works: with what each task was sent.
    """

    cancel: Callable[[str], None]
    tasks: list[Task] = field(default_factory=list)
    units: dict[int, tuple[LeaseState, Pending]] = field(default_factory=dict)
    open_tasks: dict[int, str] = field(default_factory=dict)
    leases: dict[int, LeaseState] = field(default_factory=dict)
    works: dict[int, bytes] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """Whose units it carries, for Spark's own pages."""
        names = list(dict.fromkeys(lease.name for lease in self.leases.values() if lease.name))
        more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
        units = f"{len(self.units)} units in {len(self.tasks)} tasks"
        return f"{units}: {'; '.join(names[:NAMED_MAX])}{more}" if names else units


@dataclass(frozen=True, slots=True)
class ExchangeSnapshot:
    """The exchange at one moment, and what it has done.

    Args:
        leases_waiting: those whose units all wait.
        units_again: handed in again, because what they ran in was lost or cancelled for another's sake.
    """

    leases: int
    leases_waiting: int
    units_waiting: int
    units_under_way: int
    spark_jobs_running: int
    spark_jobs: int
    units_done: int
    units_again: int


class Board:
    """Leases, their units and the flights that carry them; every method may come from any thread."""

    def __init__(self, limits: ExchangeLimits) -> None:
        self.limits = limits
        self.changed = threading.Condition()
        self._leases: deque[LeaseState] = deque()
        self._flights: set[Flight] = set()
        self._running: Counter[str] = Counter()
        self._tickets = count(1)
        self._tasks = count(1)
        self._spark_jobs = self._units_done = self._units_again = 0

    # -- the lease's side

    def open(self, lease: LeaseState) -> None:
        """Begin to serve a lease."""
        with self.changed:
            self._leases.append(lease)

    def hand_in(self, lease: LeaseState, unit: Any, content: bytes) -> None:
        """Let a unit wait for a task; that of a cancelled lease has ended."""
        with self.changed:
            if lease.is_cancelled:
                lease.ended.append(Outcome(unit, None, TargetCancelled(CANCELLED), 0.0))
                return
            lease.units.append(Pending(next(self._tickets), unit, content))
            self.changed.notify_all()

    def next_outcome(self, lease: LeaseState, wait_s: float) -> Outcome[Any, Any] | None:
        """An outcome, or None after the wait, or when none can come.

        Raises: TaskBroken, UnitsLost, LeaseRefused: what ended the lease.
        """
        with self.changed:
            self.changed.wait_for(lambda: lease.ended or lease.failure or not lease.load, timeout=wait_s)
            if lease.ended:
                return lease.ended.popleft()
            if lease.failure is not None:
                raise lease.failure
            return None

    def use_of(self, lease: LeaseState) -> dict[str, Any]:
        """What a lease has taken of Spark so far."""
        with self.changed:
            return lease.use.document()

    def renew(self, lease: LeaseState, work: bytes) -> list[Outcome[Any, Any]]:
        """Let units begin with other work from now on; returns what was refused a login with the former."""
        with self.changed:
            lease.work = work
            ended, lease.ended = lease.ended, deque()
            refused: list[Outcome[Any, Any]] = []
            for each in ended:
                (refused if isinstance(each.error, TargetAuthFailed) else lease.ended).append(each)
            return refused

    def drop_waiting(self, lease: LeaseState) -> None:
        """Forget units that no flight has taken; they have no outcome."""
        with self.changed:
            lease.units.clear()
            self.changed.notify_all()

    def end(self, lease: LeaseState, *, is_closed: bool) -> list[Flight]:
        """Cancel a lease, or close it; returns the flights that carry units of it."""
        with self.changed:
            lease.is_cancelled = True
            flights = list({id(flight): flight for _, flight in lease.under_way.values()}.values())
            left = [pending for pending, _ in lease.under_way.values()] + list(lease.units)
            lease.units.clear()
            lease.under_way.clear()
            lease.ended.extend(Outcome(p.unit, None, TargetCancelled(CANCELLED), 0.0) for p in left)
            if is_closed and not lease.is_closed:
                lease.is_closed = True
                self._leases.remove(lease)
            self.changed.notify_all()
        return flights

    # -- the dispatcher's side

    def is_wanted(self, job_class: JobClass) -> bool:
        """Whether a lease of a class has units that may start now."""
        with self.changed:
            return any(self._may_fly(lease, job_class) for lease in self._leases)

    def _may_fly(self, lease: LeaseState, job_class: JobClass) -> bool:
        if lease.job_class != job_class or lease.failure is not None:
            return False
        return has_room(lease, self._running.__getitem__)

    @property
    def gather_s(self) -> float:
        """How long to wait now for more units."""
        with self.changed:
            return self.limits.gather_s if len(self._leases) > 1 else self.limits.alone_s

    def take_off(self, job_class: JobClass, cancel: Callable[[str], None], *, cores: int) -> Flight | None:
        """Gather the tasks of the next job of Spark; None: nothing can start now.

        Args:
            cancel: ends that job; called without the board's lock.
        """
        with self.changed:
            found = gather(
                [lease for lease in self._leases if self._may_fly(lease, job_class)],
                self._running.__getitem__,
                tasks_max=cores * self.limits.tasks_per_core,
                task_s=self.limits.task_s,
                bytes_max=self.limits.flight_bytes,
            )
            if not found:
                return None
            self._leases.rotate(-1)  # another is served first the next time
            flight = Flight(cancel)
            for gathered in found:
                self._take(flight, gathered)
            self._flights.add(flight)
            self._spark_jobs += 1
            return flight

    def _take(self, flight: Flight, gathered: Gathered) -> None:
        lease, number = gathered.lease, next(self._tasks)
        assert isinstance(lease, LeaseState), "the board gathers its own leases"
        flight.open_tasks[number] = lease.place
        flight.leases[number], flight.works[number] = lease, lease.work
        self._running[lease.place] += 1
        for pending in gathered.units:
            lease.under_way[pending.ticket] = (pending, flight)
            flight.units[pending.ticket] = (lease, pending)
        units = tuple((pending.ticket, pending.content) for pending in gathered.units)
        flight.tasks.append(Task(number, lease.work, units))

    def deliver(self, flight: Flight, reports: Sequence[Report]) -> None:
        """Take the reports of a task that has ended; from a thread of pyspark's."""
        with self.changed:
            for report in reports:
                self._leave(flight, report.task)
                if report.kind == "RAN":
                    _note_use(flight, report)
                    continue
                found = flight.units.pop(report.ticket, None)
                if found is not None and found[0].under_way.pop(report.ticket, None) is not None:
                    self._report(*found, report, flight.works.get(report.task))
            self.changed.notify_all()

    def _leave(self, flight: Flight, task: int) -> None:
        place = flight.open_tasks.pop(task, None)
        if place is not None:
            self._running[place] -= 1
            if not self._running[place]:
                del self._running[place]

    def _report(self, lease: LeaseState, pending: Pending, report: Report, work: bytes | None) -> None:
        if report.kind == "NOT_RUN":
            _queue(lease, pending)
            return
        if report.kind == "BROKEN":
            lease.failure = TaskBroken(report.content.decode(errors="replace"))
            return
        try:
            result, error, elapsed_s = pickle.loads(report.content)  # noqa: S301 - our own worker wrote it
        except Exception as broken:  # noqa: BLE001 - in pyspark's thread, where nobody else would hear of it
            lease.failure = TaskBroken(f"a result cannot be read: {broken}")
            return
        if isinstance(error, TargetAuthFailed) and work is not lease.work:
            _queue(lease, pending)  # with a password that has been renewed meanwhile
            return
        self._units_done += 1
        lease.learn(elapsed_s)
        lease.ended.append(Outcome(pending.unit, result, error, elapsed_s))

    def land(self, flight: Flight, error: SparkError | None) -> None:
        """A job of Spark has ended, well or not: what was not heard of is handed in again."""
        with self.changed:
            for task in list(flight.open_tasks):
                self._leave(flight, task)
            for lease, pending in flight.units.values():
                if lease.under_way.pop(pending.ticket, None) is not None:
                    self._hand_in_again(lease, pending, error)
            flight.units.clear()
            self._flights.discard(flight)
            self.changed.notify_all()

    def _hand_in_again(self, lease: LeaseState, pending: Pending, error: SparkError | None) -> None:
        pending.again += 1
        if not isinstance(error, SparkJobCancelled):
            pending.losses += 1
            # A dead JVM tells nothing about the unit; a failed job does, and so does the second dead JVM.
            pending.alone = pending.losses > 1 or not isinstance(error, SparkLost)
        if pending.losses > self.limits.losses_max or pending.again > self.limits.again_max:
            detail = error.detail if error else "a task ended without a report"
            lease.failure = UnitsLost(f"a unit was lost {pending.again} times; the last time: {detail}")
            return
        self._units_again += 1
        _queue(lease, pending)

    def refuse(self, job_class: JobClass, refused: LeaseRefused) -> None:
        """The pool gives no slot: leases of the class that have only waiting units end."""
        with self.changed:
            for lease in self._leases:
                if lease.job_class == job_class and lease.units and not lease.under_way:
                    lease.failure = refused
            self.changed.notify_all()

    def cancel_all(self) -> None:
        """Cancel every lease: the exchange ends."""
        with self.changed:
            leases = list(self._leases)
        for lease in leases:
            for flight in self.end(lease, is_closed=False):
                flight.cancel("the exchange ends")

    def snapshot(self) -> ExchangeSnapshot:
        """How it stands."""
        with self.changed:
            return ExchangeSnapshot(
                leases=len(self._leases),
                leases_waiting=sum(1 for lease in self._leases if lease.units and not lease.under_way),
                units_waiting=sum(len(lease.units) for lease in self._leases),
                units_under_way=sum(len(lease.under_way) for lease in self._leases),
                spark_jobs_running=len(self._flights),
                spark_jobs=self._spark_jobs,
                units_done=self._units_done,
                units_again=self._units_again,
            )


def _note_use(flight: Flight, report: Report) -> None:
    """Of no other use than to be shown: what cannot be read is left out."""
    with suppress(Exception):
        flight.leases[report.task].use.add(pickle.loads(report.content))  # noqa: S301 - our own worker wrote it


def _queue(lease: LeaseState, pending: Pending) -> None:
    """Back to its place: units go in the order in which they were handed in."""
    later = [other for other in lease.units if other.ticket > pending.ticket]
    for _ in later:
        lease.units.pop()
    lease.units.append(pending)
    lease.units.extend(later)
