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
from spark.purge.keys import (
    Key,
    Run,
    RunsOfKeys,
    first_of,
    keys_within,
    last_of,
    pack_runs,
    pack_texts,
    unpack_runs,
    unpack_texts,
)
from spark.purge.planned import PurgePlan, TablePlan
from spark.purge.upkeep_rules import RULES
from spark.targets.connection import Connection
from spark.targets.walk import Bounds, Piece

CHECKPOINT_KEYS = "keys"
PART_RUNS = 20_000
PARTS_HELD_MAX = 4
OF_NODES = ("STRANDED", "BATCHES")
"""Steps whose keys are batch and node; the node is kept by its number in a list."""
PART_TEXTS = 10_000
TEXT_STEPS = frozenset(rule.step for rules in RULES.values() for rule in rules)
"""Steps whose keys are of any type: kept as texts; a key is the number of its text in the plan, from 1."""


class KeyRecorder:
    """Keeps the keys of a plan with its job, a part at a time."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._nodes: dict[str, int] = {}
        self._open: dict[str, RunsOfKeys] = {}
        self._parts: dict[str, list[list[Any]]] = {}
        self._rows: dict[str, int] = {}
        self._texts: dict[str, list[tuple[Any, ...]]] = {}
        self._texts_parts: dict[str, int] = {}

    def take(self, step: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """The next keys of a step."""
        known = self._rows.get(step, 0)
        self._rows[step] = known + len(rows)
        if step in TEXT_STEPS:
            self._keep_texts(step, rows)
            keys: list[Key] = [(number,) for number in range(known + 1, known + len(rows) + 1)]
        else:
            keys = _numbered(step, rows, self._number)
        runs = self._open.setdefault(step, RunsOfKeys())
        for key in keys:
            runs.add(key)
        if len(runs.runs) >= PART_RUNS:
            self._close(step)

    def _keep_texts(self, step: str, rows: Sequence[tuple[Any, ...]], *, all_of_them: bool = False) -> None:
        """Write down what fills a part, or all that is left."""
        held = self._texts.setdefault(step, [])
        held += rows
        while len(held) >= PART_TEXTS or (all_of_them and held):
            number = self._texts_parts.get(step, 0)
            self._context.save_checkpoint(_texts_part(step, number), {"texts": pack_texts(held[:PART_TEXTS])})
            self._texts_parts[step] = number + 1
            del held[:PART_TEXTS]

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
        for step in list(self._texts):
            self._keep_texts(step, (), all_of_them=True)
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


def _texts_part(step: str, number: int) -> str:
    return f"{CHECKPOINT_KEYS}.{step}.texts.{number}"


@dataclass(slots=True)
class PlannedKeys:
    """The rows of a plan, read as they are needed."""

    noted: Mapping[str, Any]
    read: Callable[[str], Mapping[str, Any] | None]
    _held: dict[str, list[Run]] = field(default_factory=dict)
    _held_texts: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    _sets: dict[str, frozenset[tuple[Any, ...]]] = field(default_factory=dict)

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
        if step in TEXT_STEPS:
            return tuple(self._text(step, number) for (number,) in keys)
        return tuple(key[1:] for key in keys) if step == PurgeKind.INCOMING else tuple(keys)

    def still(self, step: str, rows: Sequence[tuple[Any, ...]]) -> int:
        """How many of these rows, which would go now and come in their order, the plan has."""
        if not rows or not self._parts(step):
            return 0
        if step in TEXT_STEPS:
            planned = self._all_texts(step)
            return sum(tuple(row) in planned for row in rows)
        numbers = {name: number for number, name in enumerate(self.noted["nodes"], 1)}
        named = _numbered(step, rows, lambda node: numbers.get(_name(node), 0))
        return len(set(named).intersection(self.within(step, min(named), max(named))))

    def _text(self, step: str, number: int) -> tuple[Any, ...]:
        part, place = divmod(number - 1, PART_TEXTS)
        return self._texts(step, part)[place]

    def _texts(self, step: str, part: int) -> list[tuple[Any, ...]]:
        name = _texts_part(step, part)
        if name not in self._held_texts:
            packed = self.read(name)
            assert packed is not None, "the parts of a plan stay as long as it does"
            while len(self._held_texts) >= PARTS_HELD_MAX:
                self._held_texts.pop(next(iter(self._held_texts)))
            self._held_texts[name] = unpack_texts(packed["texts"])
        return self._held_texts[name]

    def _all_texts(self, step: str) -> frozenset[tuple[Any, ...]]:
        if step not in self._sets:
            count = -(-self.rows(step) // PART_TEXTS)
            self._sets[step] = frozenset(text for part in range(count) for text in self._texts(step, part))
        return self._sets[step]

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
