"""Runs a whole purge INCOMING or DATA_GAP as a caller would: window after window, unit after unit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from spark.purge.cutoff import CutoffValue
from spark.purge.data_gap import DataGapUnit, DataGapWalk, run_data_gap
from spark.purge.data_gap import unit_id as gap_unit_id
from spark.purge.incoming import IncomingUnit, IncomingWalk, node_ranges, run_incoming, unit_id
from spark.purge.reading.inspect import inspect
from spark.targets.archive.file import UNIT_ID
from spark.targets.connection import Connection, connect
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger
from spark.targets.transaction import UnitResult
from spark.targets.walk import Key, Piece, Walk
from tests.oracles.symmetricds import Place
from tests.spark.purge.outgoing_run import target_of

RESOURCE = "public.sym_kind"
Run = Callable[[Connection, Any], UnitResult]


@dataclass
class KindRun:
    """One purge; `rows` is the size of a unit."""

    place: Place
    kind: str
    cutoff: CutoffValue
    rows: int = 5_000
    window: int = 3
    job_id: str = "job_01ABCDEFGHJKMNPQRSTVWXYZ01"
    archive_dir: Path | None = None
    units: list[Any] = field(default_factory=list)

    def run(self, *, stop_after: int | None = None) -> int:
        """Every unit, or the first ones; returns the rows that went."""
        target = target_of(self.place)
        with closing(connect(target, application_name="test")) as conn:
            assert ensure_ledger(conn)
            raise_fence(conn, RESOURCE, token=1, owner="job")
            walk, make, run = self._parts(conn)
            removed = 0
            for piece in self._pieces(conn, walk):
                unit = make(piece)
                assert UNIT_ID.fullmatch(unit.unit_id), unit.unit_id
                assert unit.unit_id not in [known.unit_id for known in self.units]
                self.units.append(unit)
                result = run(conn, unit)
                assert result.rows <= self.rows
                assert run(conn, unit) == UnitResult(result.rows, True, None, 0)
                removed += result.rows
                if stop_after is not None and len(self.units) >= stop_after:
                    break
        return removed

    def _pieces(self, conn: Connection, walk: Walk) -> list[Piece]:
        bounds = walk.bounds(conn, walk.steps[0], {})
        found: list[Piece] = []
        after: Key | None = None
        while bounds is not None and (
            window := walk.pieces(conn, walk.steps[0], bounds, after=after, rows=self.rows, count=self.window)
        ):
            assert len(window) <= self.window
            found += window
            after = window[-1].hi
        return found

    def _parts(self, conn: Connection) -> tuple[Walk, Callable[[Piece], Any], Run]:
        head = {
            "job_id": self.job_id,
            "token": 1,
            "resource": RESOURCE,
            "archive_dir": None if self.archive_dir is None else str(self.archive_dir),
        }
        if self.kind == "INCOMING":
            nodes = node_ranges(conn, self.cutoff)
            return IncomingWalk(nodes), partial(_incoming, nodes, head), run_incoming
        form = inspect(conn, "DATA_GAP").layout.gap_time
        assert form is not None
        return DataGapWalk(form, self.cutoff), partial(_gap, form, self.cutoff, head), run_data_gap


def _incoming(nodes: Any, head: dict[str, Any], piece: Piece) -> IncomingUnit:
    (number, lo), (_, hi) = piece.lo, piece.hi
    node = nodes[number - 1].node_id
    return IncomingUnit(unit_id=unit_id(number, node, lo, hi), node_id=node, lo=lo, hi=hi, **head)


def _gap(form: Any, cutoff: CutoffValue, head: dict[str, Any], piece: Piece) -> DataGapUnit:
    name = gap_unit_id(piece.lo, piece.hi)
    return DataGapUnit(unit_id=name, lo=piece.lo, hi=piece.hi, form=form, cutoff=cutoff, **head)
