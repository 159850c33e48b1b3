"""Drives the units of spark.purge over one database without the service: the engine "lethe" of the tests.

The planner runs in the caller's thread and stays a few ranges ahead; each worker has a connection of its own.
A step begins when the one before has ended, as the document orders them.
"""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from spark.purge.cutoff import CutoffValue
from spark.purge.ranges import Range, next_ranges, step_bounds
from spark.purge.statements import STEPS, PurgeSpec, Step
from spark.purge.unit import UnitResult, UnitSpec, run_unit
from spark.targets.connection import Connection, Target, connect, identity
from spark.targets.errors import TargetError
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger
from tests.oracles.symmetricds_database import Place

OWNER = "test ground"
TOKEN = 1
WINDOW = 8
TRIES_MAX = 100
PAUSE_S = 0.02


@dataclass
class Tally:
    """What the units did; written by workers under a lock.

    Attributes:
        seconds: from the planning of the first range to the last COMMIT.
        longest_s: of one unit, retries not counted.
        retries: units that met a lock and were tried again.
    """

    rows: dict[Step, int] = field(default_factory=lambda: dict.fromkeys(STEPS, 0))
    units: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0
    retries: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, step: Step, result: UnitResult, seconds: float) -> None:
        """Count one committed unit."""
        with self.lock:
            self.rows[step] += result.rows
            self.units += 1
            self.longest_s = max(self.longest_s, seconds)


class _Workers:
    """A fixed number of threads that run units as they come."""

    def __init__(self, target: Target, count: int, tally: Tally, *, application_name: str) -> None:
        self._units: queue.Queue[UnitSpec | None] = queue.Queue(maxsize=count)
        self._tally = tally
        self._application_name = application_name
        self._failure: TargetError | AssertionError | None = None
        self._threads = [threading.Thread(target=self._work, args=(target,)) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def give(self, unit: UnitSpec) -> None:
        """Hand a unit over; waits until a worker has room."""
        self._units.put(unit)

    def settle(self) -> None:
        """Wait until every unit given has ended."""
        self._units.join()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """End the threads and their connections."""
        for _ in self._threads:
            self._units.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, target: Target) -> None:
        with self._connected(target) as conn:
            while (unit := self._units.get()) is not None:
                try:
                    # After a failure the rest is only taken off the queue, so that nobody waits for ever.
                    if self._failure is None:
                        self._run(conn, unit)
                except (TargetError, AssertionError) as exc:
                    self._failure = exc
                finally:
                    self._units.task_done()
            self._units.task_done()

    def _connected(self, target: Target) -> Connection:
        """A connection of a worker's own: a SQLite file may be locked by another's unit when it is opened."""
        for number in range(TRIES_MAX):
            try:
                return connect(target, application_name=self._application_name)
            except TargetError as exc:
                if not exc.transient or number == TRIES_MAX - 1:
                    raise
                time.sleep(PAUSE_S)
        raise AssertionError("the last try returns or raises")

    def _run(self, conn: Connection, unit: UnitSpec) -> None:
        for number in range(TRIES_MAX):
            begun = time.perf_counter()
            try:
                result = run_unit(conn, unit)
            except TargetError as exc:
                if not exc.transient or number == TRIES_MAX - 1:
                    raise
                self._tally.retries += 1
                time.sleep(PAUSE_S)
                continue
            self._tally.add(unit.step, result, time.perf_counter() - begun)
            return


def purge_inline(
    target: Target,
    cutoff: CutoffValue,
    *,
    strict: bool = False,
    stranded: str = "MARK",
    rows_in_unit: dict[Step, int],
    batches_in_unit: int | None = None,
    workers: int = 1,
) -> Tally:
    """Purge a whole database with ledger and fence, without an archive.

    Args:
        target: the database.
        cutoff: as its columns keep times.
        rows_in_unit: rows of a step's table in one range.
        batches_in_unit: of EVENTS; None lets the rows alone decide.
        workers: threads with a connection each.
    """
    spec = PurgeSpec(cutoff, strict=strict, mark_stranded=stranded == "MARK")
    tally = Tally()
    # Each run is a job of its own: a ledger would take the units of a second run for repeated ones.
    job_id = f"job_{uuid.uuid4().hex[:26]}"
    with ExitStack() as stack:
        planner = stack.enter_context(connect(target, application_name=f"{job_id}:plan:{TOKEN}"))
        assert ensure_ledger(planner)
        resource = identity(planner)
        raise_fence(planner, resource, token=TOKEN, owner=OWNER)
        crew = _Workers(target, workers, tally, application_name=f"{job_id}:idle:{TOKEN}")
        stack.callback(crew.close)
        begun = time.perf_counter()
        bounds: dict[Step, tuple[int, int] | None] = {}
        for step in STEPS if spec.mark_stranded else STEPS[1:]:
            # EVENTS and BATCHES share their bounds: the deletes would move them.
            bounds[step] = bounds["EVENTS"] if step == "BATCHES" else step_bounds(planner, step, spec)
            for number, one in enumerate(
                _ranges(planner, step, spec, bounds[step], rows_in_unit[step], batches_in_unit)
            ):
                crew.give(_unit(job_id, step, number, one, spec, resource))
            crew.settle()
        tally.seconds = time.perf_counter() - begun
    return tally


def _ranges(
    planner: Connection,
    step: Step,
    spec: PurgeSpec,
    bounds: tuple[int, int] | None,
    rows: int,
    batches: int | None,
) -> Iterator[Range]:
    if bounds is None:
        return
    after, upto = bounds[0] - 1, bounds[1]
    while window := next_ranges(
        planner, step, spec, after=after, upto=upto, rows=rows, count=WINDOW, max_batches=batches
    ):
        yield from window
        after = window[-1].hi


def _unit(job_id: str, step: Step, number: int, one: Range, spec: PurgeSpec, resource: str) -> UnitSpec:
    return UnitSpec(
        job_id=job_id,
        unit_id=f"{step.lower()}-{number:09d}",
        step=step,
        lo=one.lo,
        hi=one.hi,
        cutoff=spec.cutoff,
        strict=spec.strict,
        token=TOKEN,
        resource=resource,
        stranded_nodes=spec.stranded_nodes,
    )


def target_of(place: Place) -> Target:
    """The floor's form of an address."""
    return Target(url=place.url, password=None, schema=place.schema, table_prefix=place.prefix)


def inline_engine(workers: int) -> Any:
    """An engine for the tests: called as (place, cutoff, stranded=..., strict=..., *_limit=...)."""

    def run(
        place: Place,
        cutoff: Any,
        *,
        data_limit: int = 5000,
        events_limit: int = 5,
        batches_limit: int = 5000,
        stranded: str = "MARK",
        strict: bool = False,
    ) -> Tally:
        rows: dict[Step, int] = {
            "STRANDED": batches_limit + 1,
            "DATA": data_limit + 1,
            "EVENTS": data_limit + 1,
            "BATCHES": batches_limit + 1,
        }
        return purge_inline(
            target_of(place),
            place.encode(cutoff),
            strict=strict,
            stranded=stranded,
            rows_in_unit=rows,
            batches_in_unit=events_limit + 1,
            workers=workers,
        )

    return run
