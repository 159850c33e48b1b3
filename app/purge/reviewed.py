"""The rows of a reviewed plan: what a purge with `plan_id` may remove, and nothing that came since.

Invariants:
- The PLAN job keeps the key of every row that it counted, in parts; a plan without them is never executed.
- A unit of such a purge names its keys, beside every condition that it has anyway: what it removes was in the
  plan and is still removable.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from app.db import Database
from app.jobs.rows import JobCheckpoint
from app.jobs.running.context import JobContext
from app.purge.models import PurgeKind
from spark.purge.keys import Key, Run, RunsOfKeys, first_of, keys_within, last_of, pack_runs, unpack_runs
from spark.purge.planned import PurgePlan, TablePlan
from spark.purge.walk import Bounds, Piece
from spark.targets.connection import Connection

CHECKPOINT_KEYS = "keys"
PART_RUNS = 20_000
PARTS_HELD_MAX = 4
OF_NODES = ("STRANDED", "BATCHES")
"""Steps whose keys are batch and node; the node is kept by its number in a list."""


class KeyRecorder:
    """Keeps the keys of a plan with its job, a part at a time."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._nodes: dict[str, int] = {}
        self._open: dict[str, RunsOfKeys] = {}
        self._parts: dict[str, list[list[Any]]] = {}
        self._rows: dict[str, int] = {}

    def take(self, step: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """The next keys of a step."""
        self._rows[step] = self._rows.get(step, 0) + len(rows)
        keys: list[Key] = _numbered(step, rows, self._number)
        runs = self._open.setdefault(step, RunsOfKeys())
        for key in keys:
            runs.add(key)
        if len(runs.runs) >= PART_RUNS:
            self._close(step)

    def _number(self, node: Any) -> int:
        return self._nodes.setdefault(_name(node), len(self._nodes) + 1)

    def _close(self, step: str) -> None:
        runs = self._open.pop(step)
        parts = self._parts.setdefault(step, [])
        name = _part(step, len(parts))
        parts.append([first_of(runs.runs[0]), last_of(runs.runs[-1]), runs.count])
        self._context.save_checkpoint(name, {"runs": pack_runs(runs.runs)})

    def finish(self, plan: PurgePlan) -> None:
        """Write down what the parts are."""
        for step in [step for step, runs in self._open.items() if runs.runs]:
            self._close(step)
        noted = {
            "parts": self._parts,
            "nodes": list(self._nodes),
            "start": dict(plan.start),
            "rows_of": self._rows,
            "rows": plan.rows,
            "rows_to_remove": plan.rows_to_remove,
        }
        self._context.save_checkpoint(CHECKPOINT_KEYS, noted)


def _name(node: Any) -> str:
    return "" if node is None else str(node)


def _numbered(step: str, rows: Sequence[tuple[Any, ...]], number: Callable[[Any], int]) -> list[Key]:
    """Keys of rows, in their order: a node by its number, which counts from 1 in the order of coming."""
    if step in OF_NODES:
        return sorted((int(batch), number(node)) for batch, node in rows)
    if step == PurgeKind.INCOMING:
        return [(number(node), int(batch)) for node, batch in rows]
    return [tuple(map(int, row)) for row in rows]


def _part(step: str, number: int) -> str:
    return f"{CHECKPOINT_KEYS}.{step}.{number}"


@dataclass(slots=True)
class PlannedKeys:
    """The rows of a plan, read as they are needed."""

    noted: Mapping[str, Any]
    read: Callable[[str], Mapping[str, Any] | None]
    _held: dict[str, list[Run]] = field(default_factory=dict)

    @classmethod
    def of_plan(cls, database: Database, plan_id: str) -> "PlannedKeys | None":
        """None: the plan is gone, or of a version that kept no rows."""

        def read(name: str) -> Mapping[str, Any] | None:
            with database.reading() as db:
                row = db.get(JobCheckpoint, (plan_id, name))
                return None if row is None else dict(row.value)

        noted = read(CHECKPOINT_KEYS)
        return None if noted is None else cls(noted, read)

    @property
    def plan(self) -> PurgePlan:
        """What the limits are judged by: all rows, and those that would go."""
        rows, to_remove = int(self.noted["rows"]), int(self.noted["rows_to_remove"])
        return PurgePlan(tables=(TablePlan("", rows, to_remove, None, None),), warnings=())

    def rows(self, step: str) -> int:
        """Rows of a step; in 2.x several of one event differ only in their router."""
        return int(self.noted["rows_of"].get(step, 0))

    def count(self, step: str) -> int:
        """Keys of a step."""
        return sum(int(count) for _first, _last, count in self._parts(step))

    def bounds(self, step: str) -> Bounds | None:
        """The first and the last key of a step."""
        parts = self._parts(step)
        return (tuple(parts[0][0]), tuple(parts[-1][1])) if parts else None

    def within(self, step: str, lo: Key, hi: Key) -> Iterator[Key]:
        """The keys from `lo` to `hi`, in their order."""
        for number, (first, last, _count) in enumerate(self._parts(step)):
            if tuple(last) >= lo and tuple(first) <= hi:
                yield from keys_within(self._runs(step, number), lo, hi)

    def bound(self, step: str, keys: Sequence[Key]) -> tuple[tuple[Any, ...], ...]:
        """Keys as a unit names them: nodes by name, INCOMING (whose units are of one node) by batch alone."""
        if step in OF_NODES:
            nodes = self.noted["nodes"]
            return tuple((batch, nodes[number - 1]) for batch, number in keys)
        return tuple(key[1:] for key in keys) if step == PurgeKind.INCOMING else tuple(keys)

    def still(self, step: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """How many of these rows, which would go now and come in their order, the plan has."""
        if not rows or not self._parts(step):
            return 0
        numbers = {name: number for number, name in enumerate(self.noted["nodes"], 1)}
        named = _numbered(step, rows, lambda node: numbers.get(_name(node), 0))
        return len(set(named).intersection(self.within(step, min(named), max(named))))

    def _parts(self, step: str) -> list[Any]:
        return list(self.noted["parts"].get(step, ()))

    def _runs(self, step: str, number: int) -> list[Run]:
        name = _part(step, number)
        if name not in self._held:
            packed = self.read(name)
            assert packed is not None, "the parts of a plan stay as long as it does"
            while len(self._held) >= PARTS_HELD_MAX:
                self._held.pop(next(iter(self._held)))
            self._held[name] = unpack_runs(packed["runs"])
        return self._held[name]


@dataclass(frozen=True, slots=True)
class PlannedWalk:
    """The way through the rows of a plan, and past everything else.

    Args:
        node_by_node: a piece lies in one first number.
    """

    steps: Sequence[str]
    keys: PlannedKeys
    node_by_node: bool = False

    def bounds(self, _conn: Connection, step: str, _known: Mapping[str, Bounds | None]) -> Bounds | None:
        """Of the plan."""
        return self.keys.bounds(step)

    def pieces(
        self, _conn: Connection, step: str, bounds: Bounds, *, after: Key | None, rows: int, count: int
    ) -> list[Piece]:
        """The next keys, `rows` in a piece."""
        lo, hi = bounds
        if after is not None:
            lo = (*after[:-1], after[-1] + 1)
        coming = self.keys.within(step, lo, hi)
        found: list[Piece] = []
        left: list[Key] = []
        while len(found) < count:
            left += islice(coming, rows - len(left))
            if not left:
                break
            end = len(left)
            if self.node_by_node:
                end = next((at for at, key in enumerate(left) if key[0] != left[0][0]), end)
            found.append(Piece(left[0], left[end - 1], end))
            left = left[end:]
        return found
