"""The rows of a reviewed plan of the purge ROWS: their keys, kept with the PLAN job in parts.

Invariants:
- the keys of a part ascend as the table's own order does; a plan that keeps not all of its keys keeps none;
- a unit of such a purge names its keys, beside every condition that it has anyway.
"""

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.db import Database
from app.jobs.errors import JobFailed
from app.jobs.rows import JobCheckpoint
from app.jobs.running.context import JobContext
from app.rows.layout import check_planned_layout
from spark.rows.family import Family
from spark.rows.keys import KeyTexts
from spark.rows.walk import place_of
from spark.targets.connection import Connection
from spark.targets.walk import Bounds, Key, Piece

CHECKPOINT_KEYS: Final = "keys"
KEYS_MAX: Final = 2_000_000
PART_KEYS: Final = 10_000
PARTS_HELD_MAX: Final = 4


class KeyRecorder:
    """Keeps the keys of a plan with its job, a part at a time."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._open: dict[int, list[KeyTexts]] = {}
        self._counts: dict[int, list[int]] = {}
        self.count = 0

    @property
    def is_whole(self) -> bool:
        """Whether the plan can name all of its rows."""
        return self.count <= KEYS_MAX

    def take(self, place: int, keys: Sequence[KeyTexts]) -> None:
        """The next keys of a table, by its place in the order of steps."""
        self.count += len(keys)
        if not self.is_whole:
            return
        held = self._open.setdefault(place, [])
        held += keys
        while len(held) >= PART_KEYS:
            self._write(place, held[:PART_KEYS])
            del held[:PART_KEYS]

    def finish(self, rows: int, rows_to_remove: int, *, layout: Mapping[str, Any]) -> None:
        """Write down what the parts are.

        Args:
            layout: of the tables (app.rows.layout).
        """
        if not self.is_whole:
            return
        for place, held in self._open.items():
            if held:
                self._write(place, held)
        counts = {str(place): counts for place, counts in self._counts.items()}
        noted: dict[str, Any] = {"counts": counts, "rows": rows, "rows_to_remove": rows_to_remove}
        noted |= layout
        self._context.save_checkpoint(CHECKPOINT_KEYS, noted)

    def _write(self, place: int, keys: Sequence[KeyTexts]) -> None:
        counts = self._counts.setdefault(place, [])
        packed = b64encode(zlib.compress(json.dumps(keys).encode(), level=6)).decode()
        self._context.save_checkpoint(f"{CHECKPOINT_KEYS}.{place}.{len(counts)}", {"keys": packed})
        counts.append(len(keys))


@dataclass(slots=True)
class PlannedKeys:
    """The keys of a plan, read as they are needed."""

    noted: Mapping[str, Any]
    read: Callable[[str], Mapping[str, Any] | None]
    _held: dict[str, list[KeyTexts]] = field(default_factory=dict)

    @classmethod
    def of_plan(cls, database: Database, plan_id: str) -> "PlannedKeys | None":
        """None: the plan is gone, or could not name its rows."""

        def read(name: str) -> Mapping[str, Any] | None:
            with database.reading() as db:
                row = db.get(JobCheckpoint, (plan_id, name))
                return None if row is None else dict(row.value)

        noted = read(CHECKPOINT_KEYS)
        return None if noted is None else cls(noted, read)

    def count(self, place: int) -> int:
        """Rows of a table."""
        return sum(map(int, self.noted["counts"].get(str(place), ())))

    @property
    def total(self) -> int:
        """Rows of all tables."""
        return sum(self.count(int(place)) for place in self.noted["counts"])

    def between(self, place: int, begin: int, end: int) -> list[KeyTexts]:
        """The keys of a table from one number to another, which is excluded."""
        found: list[KeyTexts] = []
        first = 0
        for number, count in enumerate(self.noted["counts"].get(str(place), ())):
            if first < end and first + count > begin:
                part = self._part(place, number)
                found += part[max(0, begin - first) : max(0, end - first)]
            first += count
        return found

    def holds(self, place: int) -> Callable[[KeyTexts], bool]:
        """Tells whether a key of a table is in the plan."""
        return frozenset(self.between(place, 0, self.count(place))).__contains__

    def _part(self, place: int, number: int) -> list[KeyTexts]:
        name = f"{CHECKPOINT_KEYS}.{place}.{number}"
        if name not in self._held:
            packed = self.read(name)
            assert packed is not None, "the parts of a plan stay as long as it does"
            while len(self._held) >= PARTS_HELD_MAX:
                self._held.pop(next(iter(self._held)))
            self._held[name] = [tuple(key) for key in json.loads(zlib.decompress(b64decode(packed["keys"])))]
        return self._held[name]


def reviewed_keys(database: Database, plan_id: str, family: Family) -> PlannedKeys:
    """The keys of a plan that is executed.

    Raises: JobFailed: PLAN_NO_LONGER_HOLDS: they are gone, or stand for other rows now.
    """
    found = PlannedKeys.of_plan(database, plan_id)
    if found is None:
        raise JobFailed("PLAN_NO_LONGER_HOLDS", "the rows of the plan are not known any more: plan again")
    check_planned_layout(found.noted, family)
    return found


@dataclass(frozen=True)
class PlannedPiece(Piece):
    """Rows of a plan by their numbers, the first included, the last excluded."""

    def after(self) -> Key:
        """What the next piece begins with."""
        return self.hi


@dataclass(frozen=True, slots=True)
class PlannedWalk:
    """The way through the rows of a plan, by their numbers in it."""

    steps: Sequence[str]
    keys: PlannedKeys

    def bounds(self, _conn: Connection, step: str, _known: Mapping[str, Bounds | None]) -> Bounds | None:
        """From the first to the last row of the table."""
        count = self.keys.count(place_of(step))
        return ((0,), (count,)) if count else None

    def pieces(
        self, _conn: Connection, _step: str, bounds: Bounds, *, after: Key | None, rows: int, count: int
    ) -> list[Piece]:
        """The next rows."""
        begin, end = (bounds[0] if after is None else after)[0], bounds[1][0]
        found: list[Piece] = []
        while begin < end and len(found) < count:
            upto = min(end, begin + rows)
            found.append(PlannedPiece((begin,), (upto,), upto - begin))
            begin = upto
        return found
