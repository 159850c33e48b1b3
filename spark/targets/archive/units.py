"""The units of an archive on their way back: the files of each, what became of it, and their order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from spark.targets.archive.archive import read_rows, verify_file
from spark.targets.archive.columns import TableShape
from spark.targets.archive.insert import Inserted
from spark.targets.manifest import ManifestEntry

RestoreState = Literal["RESTORED", "ALREADY", "CONFLICT", "CORRUPT", "MISSING"]
# Ends of table names, whatever their prefix; others follow.
LIVE_ORDER = ("outgoing_batch", "data_event", "data", "incoming_batch", "data_gap")


@dataclass(frozen=True, slots=True)
class RestoredUnit:
    """What became of one unit: rows written, and rows that were there already."""

    job_id: str
    unit_id: str
    table_name: str
    state: RestoreState
    rows: int = 0
    skipped: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore did; `stopped` when `should_stop` ended it before the last unit."""

    units: tuple[RestoredUnit, ...]
    stopped: bool = False

    @property
    def rows(self) -> int:
        return sum(unit.rows for unit in self.units)

    @property
    def refused(self) -> tuple[RestoredUnit, ...]:
        return tuple(unit for unit in self.units if unit.state in ("CONFLICT", "CORRUPT", "MISSING"))


@dataclass(frozen=True, slots=True)
class ArchivedUnit:
    """The files of one unit and table, the newest attempt first; more than one only without a manifest."""

    files: tuple[ManifestEntry, ...]

    @property
    def first(self) -> ManifestEntry:
        return self.files[0]

    def rows(self, shape: TableShape) -> Iterator[tuple[object, ...]]:
        """Each row once: where attempts overlap, the newest one has the row."""
        if len(self.files) == 1:
            yield from read_rows(self.first.path)
            return
        names = [column.name for column in shape.columns]
        named = shape.primary_key if shape.key_is_whole else ()
        key = [names.index(name) for name in named] or list(range(len(names)))
        seen: set[tuple[object, ...]] = set()
        for file in self.files:
            for row in read_rows(file.path):
                found = tuple(row[index] for index in key)
                if found not in seen:
                    seen.add(found)
                    yield row


def damage_of(unit: ArchivedUnit) -> RestoredUnit | None:
    """What is wrong with its files; None: nothing is."""
    for file in unit.files:
        check = verify_file(file)
        if check.state != "OK":
            return RestoredUnit(*names_of(unit), check.state, detail=check.detail)
    return None


def archived_units(entries: Sequence[ManifestEntry]) -> list[ArchivedUnit]:
    """The units of an archive, in the order in which tables are restored."""
    grouped: dict[tuple[str, str, str], list[ManifestEntry]] = {}
    for entry in entries:
        grouped.setdefault((entry.job_id, entry.unit_id, entry.table_name), []).append(entry)
    units = [ArchivedUnit(tuple(sorted(files, key=_age, reverse=True))) for files in grouped.values()]
    return sorted(units, key=lambda unit: rank_of(unit.first.table_name))


def _age(entry: ManifestEntry) -> tuple[int, int]:
    """Attempts in the order in which they were made: by token, then by the number behind it."""
    again = Path(entry.path).name.removesuffix(".parquet").rpartition(f"-{entry.token}.")[2]
    return entry.token, int(again) if again.isdecimal() else 1


def rank_of(table: str) -> int:
    """The place of a table of SymmetricDS among these; others stand behind."""
    for rank, end in enumerate(LIVE_ORDER):
        if table.endswith(end):
            return rank
    return len(LIVE_ORDER)


def names_of(unit: ArchivedUnit) -> tuple[str, str, str]:
    """Job, unit and table."""
    return unit.first.job_id, unit.first.unit_id, unit.first.table_name


def restored(unit: ArchivedUnit, done: Inserted) -> RestoredUnit:
    """What became of a unit that was written."""
    state: RestoreState = "ALREADY" if done.skipped and not done.rows else "RESTORED"
    return RestoredUnit(*names_of(unit), state, done.rows, done.skipped)
