"""Which waiting units of which jobs make the next job of Spark: pure, over what the exchange holds.

Invariants:
- at a place run at most as many tasks as each lease there allows, over all jobs of Spark and all leases;
- a task holds units of one lease, in their order, worth about `task_s`;
- a unit that must be alone has a job of Spark for itself: only its own lease can fail by it;
- a job of Spark carries no more bytes than it may, or one unit: each of its tasks is sent all of them.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from spark.pool.snapshot import JobClass

UNIT_FIRST_S = 0.3
"""What a unit is taken to last before one has ended."""
UNIT_LEAST_S = 0.005


@dataclass(eq=False, slots=True)
class Pending:
    """One unit that was handed in and has no outcome yet.

    Args:
        losses: jobs of Spark that ended badly with it inside.
        again: how often it was handed in again, for whatever reason.
    """

    ticket: int
    unit: Any
    content: bytes
    losses: int = 0
    again: int = 0
    alone: bool = False


@dataclass(eq=False, slots=True)
class Waiting:
    """What one lease has waiting, and what is known of it."""

    place: str
    workers: int
    job_class: JobClass
    units: deque[Pending] = field(default_factory=deque)
    unit_s: float | None = None

    def per_task(self, task_s: float) -> int:
        """How many units are worth `task_s`."""
        return max(1, math.floor(task_s / max(UNIT_LEAST_S, self.unit_s or UNIT_FIRST_S)))

    def learn(self, elapsed_s: float) -> None:
        """One unit has ended."""
        self.unit_s = elapsed_s if self.unit_s is None else 0.7 * self.unit_s + 0.3 * elapsed_s


@dataclass(frozen=True, slots=True)
class Gathered:
    """Units of one lease that go together."""

    lease: Waiting
    units: tuple[Pending, ...]


def has_room(lease: Waiting, running: Callable[[str], int]) -> bool:
    """Whether a task of a lease may start now."""
    return bool(lease.units) and running(lease.place) < lease.workers


def gather(
    leases: Iterable[Waiting],
    running: Callable[[str], int],
    *,
    tasks_max: int,
    task_s: float,
    bytes_max: int,
) -> list[Gathered]:
    """Take the next tasks out of what waits, one of each lease in turn.

    Args:
        leases: in the order in which they are served.
        running: how many tasks run at a place now.
        bytes_max: of all units together.
    """
    left_bytes = bytes_max
    taken: dict[str, int] = {}
    found: list[Gathered] = []

    def room(lease: Waiting) -> int:
        return lease.workers - running(lease.place) - taken.get(lease.place, 0)

    candidates = [lease for lease in leases if lease.units]
    while candidates and len(found) < tasks_max:
        left = []
        for lease in candidates:
            if len(found) >= tasks_max or room(lease) <= 0:
                continue
            if found and len(lease.units[0].content) > left_bytes:
                continue
            if lease.units[0].alone:
                if found:
                    continue
                return [Gathered(lease, (lease.units.popleft(),))]
            units = _next_units(lease, room(lease), task_s, bytes_max=left_bytes)
            found.append(Gathered(lease, units))
            left_bytes -= sum(len(unit.content) for unit in units)
            taken[lease.place] = taken.get(lease.place, 0) + 1
            assert room(lease) >= 0, "more tasks at a place than its lease allows"
            if lease.units:
                left.append(lease)
        candidates = left
    return found


def _next_units(lease: Waiting, room: int, task_s: float, *, bytes_max: int) -> tuple[Pending, ...]:
    """As many as are worth a task, and no more than this worker's share of what waits."""
    count = min(lease.per_task(task_s), math.ceil(len(lease.units) / room))
    units: list[Pending] = []
    while lease.units and len(units) < count and not lease.units[0].alone:
        bytes_max -= len(lease.units[0].content)
        if units and bytes_max < 0:
            break
        units.append(lease.units.popleft())
    assert units
    assert not any(unit.alone for unit in units), "who must be alone goes alone"
    return tuple(units)
