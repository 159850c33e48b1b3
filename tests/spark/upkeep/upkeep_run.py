"""Runs a whole purge of the smaller tables as a caller would: step after step, unit after unit."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from typing import Any, get_args

from spark.formats.symmetricds import KindName, Layout
from spark.purge.cutoff import CutoffValue
from spark.purge.planned import PurgePlan
from spark.purge.reading.inspect import inspect
from spark.rows.walk import texts
from spark.targets.archive.file import UNIT_ID
from spark.targets.connection import Connection, connect
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger
from spark.targets.walk import Key
from spark.upkeep.parts import Part, parts_of
from spark.upkeep.plan import plan_upkeep
from spark.upkeep.unit import UpkeepUnit, run_upkeep, unit_id
from spark.upkeep.walk import UpkeepWalk
from tests.oracles.symmetricds import Place
from tests.spark.purge.outgoing_run import target_of

RESOURCE = "public.sym_upkeep"
_numbers = count(1)


@dataclass
class UpkeepRun:
    """One purge; `rows` is the size of a unit."""

    place: Place
    kind: KindName
    cutoff: CutoffValue
    rows: int = 5_000
    marks: bool = False
    recaptures: bool = False
    archive_dir: str | None = None
    job_id: str = field(default_factory=lambda: f"job_{next(_numbers):026d}")
    planned: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def plan(self) -> PurgePlan:
        """What would go; its keys are kept."""
        with closing(connect(target_of(self.place), application_name="test", read_only=True)) as conn:
            return plan_upkeep(
                conn,
                self.kind,
                self._layout(conn),
                self.cutoff,
                lambda: False,
                marks=self.marks,
                recaptures=self.recaptures,
                now=self.cutoff,
                keys=lambda step, keys: self.planned.setdefault(step, []).extend(keys),
            )

    def run(
        self, *, of_plan: bool = False, before: Callable[[UpkeepUnit], None] | None = None
    ) -> dict[str, int]:
        """Every unit, each done twice; rows by step.

        Args:
            of_plan: the rows of the plan that was made, and no others.
            before: called before each unit.
        """
        removed: dict[str, int] = {}
        with closing(connect(target_of(self.place), application_name="test")) as conn:
            assert ensure_ledger(conn)
            raise_fence(conn, RESOURCE, token=1, owner="job")
            layout = self._layout(conn)
            parts = parts_of(
                conn, self.kind, layout, self.cutoff, marks=self.marks, recaptures=self.recaptures
            )
            for unit in self._of_plan(parts) if of_plan else self._units(conn, parts):
                assert UNIT_ID.fullmatch(unit.unit_id), unit.unit_id
                if before is not None:
                    before(unit)
                sent = pickle.loads(pickle.dumps(unit))
                result = run_upkeep(conn, sent)
                assert result.refused is None
                again = run_upkeep(conn, sent)
                assert (again.rows, again.repeated) == (result.rows, True)
                removed[unit.step] = removed.get(unit.step, 0) + result.rows
        return removed

    def _layout(self, conn: Connection) -> Layout:
        assert self.kind in get_args(KindName)
        return inspect(conn, self.kind).layout

    def _units(self, conn: Connection, parts: tuple[Part, ...]) -> Iterator[UpkeepUnit]:
        walk = UpkeepWalk(parts)
        for part in parts:
            bounds = walk.bounds(conn, part.step, {})
            after: Key | None = None
            while bounds is not None and (
                pieces := walk.pieces(conn, part.step, bounds, after=after, rows=self.rows, count=3)
            ):
                for piece in pieces:
                    name = unit_id(part.step, piece.lo, piece.hi)
                    yield self._unit(part, name, texts(piece.lo), texts(piece.hi), None)
                after = pieces[-1].hi

    def _of_plan(self, parts: tuple[Part, ...]) -> Iterator[UpkeepUnit]:
        for part in parts:
            keys = self.planned.get(part.step, [])
            for first in range(0, len(keys), self.rows):
                only = tuple(keys[first : first + self.rows])
                yield self._unit(part, unit_id(part.step, (first,), (first + len(only),)), (), (), only)

    def _unit(self, part: Part, name: str, after: Any, upto: Any, only: tuple[Any, ...] | None) -> UpkeepUnit:
        return UpkeepUnit(
            job_id=self.job_id,
            unit_id=name,
            part=part,
            after=after,
            upto=upto,
            cutoff=self.cutoff,
            token=1,
            resource=RESOURCE,
            archive_dir=self.archive_dir,
            only=only,
        )
