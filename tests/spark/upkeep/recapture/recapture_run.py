"""Runs a whole purge of stranded rows with recapture as a caller would."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from spark.targets.archive.archive import read_rows, read_shape
from spark.targets.connection import connect
from spark.targets.ledger import archive_manifest
from spark.upkeep.parts import Part, parts_of
from spark.upkeep.unit import UpkeepUnit
from tests.oracles.symmetricds import CUTOFF, Place
from tests.spark.purge.outgoing_run import target_of
from tests.spark.upkeep.upkeep_run import UpkeepRun


@dataclass
class RecaptureRun(UpkeepRun):
    """One purge of kind STRANDED whose rows are captured anew."""

    def remaining(self) -> dict[str, tuple[int, list[int]]]:
        """What is still stranded: count and sample by reason."""
        from spark.upkeep.recapture.judging import remaining

        with closing(connect(target_of(self.place), application_name="test", read_only=True)) as conn:
            part = self.part(conn)
            return {
                each.code: (each.count, [int(data_id) for data_id in each.sample])
                for each in remaining(conn, part, lambda: False)
                if each.count
            }

    def archived(self) -> dict[str, list[tuple[object, ...]]]:
        """The rows of the archive by table."""
        found: dict[str, list[tuple[object, ...]]] = {}
        with closing(connect(target_of(self.place), application_name="test")) as conn:
            for entry in archive_manifest(conn, self.job_id):
                names = [column.name for column in read_shape(entry.path).columns]
                order = sorted(range(len(names)), key=names.__getitem__)
                rows = [tuple(row[place] for place in order) for row in read_rows(entry.path)]
                found.setdefault(entry.table_name.removeprefix(self.place.prefix), []).extend(rows)
        return found

    def part(self, conn: Any) -> Part:
        """Of sym_data."""
        parts = parts_of(conn, self.kind, self._layout(conn), self.cutoff, recaptures=self.recaptures)
        return next(part for part in parts if part.step == "data")

    def units(self, conn: Any) -> list[UpkeepUnit]:
        """Of sym_data, all at once."""
        return list(self._units(conn, (self.part(conn),)))

    def _unit(self, part: Part, name: str, after: Any, upto: Any, only: Any) -> UpkeepUnit:
        unit = super()._unit(part, name, after, upto, only)
        return replace(unit, recapture=True) if unit.step == "data" else unit


def run_of(place: Place, *, rows: int = 200, archive_dir: str | None = None) -> RecaptureRun:
    """A purge of a place."""
    return RecaptureRun(
        place, "STRANDED", place.encode(CUTOFF), rows=rows, recaptures=True, archive_dir=archive_dir
    )
