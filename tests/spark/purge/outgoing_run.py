"""Runs a whole outgoing purge as a caller would: step after step, window after window, unit after unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path

from spark.purge.ranges import next_ranges, step_bounds
from spark.purge.statements import STEPS, PurgeSpec, Step
from spark.purge.unit import UnitResult, UnitSpec, run_unit
from spark.targets.connection import Connection, Target, connect
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger
from tests.oracles.symmetricds import Place

JOB = "job_01ABCDEFGHJKMNPQRSTVWXYZ01"
RESOURCE = "OUTGOING"
_numbers = count(1)


@dataclass
class OutgoingRun:
    """One purge; `rows` and `max_batches` are the size of a unit."""

    place: Place
    spec: PurgeSpec
    rows: int = 20_000
    max_batches: int | None = None
    workers: int = 1
    window: int = 4
    ledger: bool = True
    archive_dir: Path | None = None
    job_id: str = field(default_factory=lambda: f"job_{next(_numbers):026d}")

    @property
    def target(self) -> Target:
        """The place, as the floor names it."""
        return target_of(self.place)

    def units(self, conn: Connection, step: Step, bounds: tuple[int, int]) -> Iterator[UnitSpec]:
        """The units of one step, read window by window."""
        after, number = bounds[0] - 1, 0
        while found := next_ranges(
            conn,
            step,
            self.spec,
            after=after,
            upto=bounds[1],
            rows=self.rows,
            count=self.window,
            max_batches=self.max_batches,
        ):
            for item in found:
                number += 1
                yield self.unit(step, f"{step.lower()}-{number:06d}", item.lo, item.hi)
            after = found[-1].hi

    def unit(self, step: Step, unit_id: str, lo: int, hi: int) -> UnitSpec:
        """One unit of this purge."""
        return UnitSpec(
            job_id=self.job_id,
            unit_id=unit_id,
            step=step,
            lo=lo,
            hi=hi,
            cutoff=self.spec.cutoff,
            strict=self.spec.strict,
            token=1,
            resource=RESOURCE,
            has_ledger=self.ledger,
            archive_dir=None if self.archive_dir is None else str(self.archive_dir),
            stranded_nodes=self.spec.stranded_nodes,
            of_channels=self.spec.of_channels,
        )

    def claim(self, conn: Connection) -> None:
        """Make the ledger and raise the fence, where this run has one."""
        if self.ledger:
            assert ensure_ledger(conn)
            raise_fence(conn, RESOURCE, token=1, owner=JOB)

    def run(self) -> Counter[str]:
        """All steps; rows by step."""
        totals: Counter[str] = Counter()
        with ExitStack() as stack:
            reader = stack.enter_context(closing(connect(self.target, application_name="test")))
            self.claim(reader)
            connections = [
                stack.enter_context(closing(connect(self.target, application_name="worker")))
                for _ in range(self.workers)
            ]
            batches = None
            for step in STEPS:
                if step == "STRANDED" and not self.spec.mark_stranded:
                    continue
                # EVENTS and BATCHES share the range, as in the document.
                bounds = batches if step == "BATCHES" else step_bounds(reader, step, self.spec)
                batches = bounds if step == "EVENTS" else batches
                if bounds is not None:
                    totals[step] += sum(
                        item.rows for item in self._results(reader, connections, step, bounds)
                    )
        return totals

    def _results(
        self, reader: Connection, connections: list[Connection], step: Step, bounds: tuple[int, int]
    ) -> list[UnitResult]:
        specs = self.units(reader, step, bounds)
        if self.workers == 1:
            return [run_unit(connections[0], spec) for spec in specs]
        found: list[UnitResult] = []
        with ThreadPoolExecutor(self.workers) as pool:
            while window := list(islice(specs, len(connections))):
                found += pool.map(run_unit, connections, window)
        return found


def target_of(place: Place) -> Target:
    """A place of the oracle as a target."""
    return Target(url=place.url, schema=place.schema, table_prefix=place.prefix)
