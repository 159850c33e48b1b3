"""The course of a sweep whose tables are cut into windows of pieces, noted before their first unit.

Invariants:
- a window is noted before its first unit, together with the end of the one before; a crash in between repeats
  a finished window, whose units find their ledger rows;
- the range of a step is computed once, when the step begins;
- a window ends when every piece of it is done; the next one begins behind its last key;
- of a sweep with a limit a piece may be refused (app.sweeps.allowance): the next window begins with it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from app.jobs.running.context import JobContext
from app.sweeps.allowance import Allowance, Limit
from app.sweeps.loop import PARTS, Charge, Course
from app.sweeps.outlook import Outlook
from app.sweeps.sizing import FIRST_ROWS, UnitSize
from spark.targets.connection import Connection
from spark.targets.transaction import AnyUnit, UnitResult
from spark.targets.walk import Bounds, Key, Piece, Walk

CHECKPOINT_LOOP = "loop"
UNIT = "rows examined"


@dataclass(slots=True)
class LoopState:
    """Where the loop stands; kept as a checkpoint.

    Attributes:
        bounds: step to its first and last key, or None where it has nothing to do.
        after: the last key that is done in `step`.
        window: the pieces under way.
        examined: rows of all finished windows.
        rows: rows removed or marked, by step, as the units told; where there is a ledger, that counts.
    """

    step: str
    bounds: dict[str, Bounds | None] = field(default_factory=dict)
    after: Key | None = None
    window: list[Piece] = field(default_factory=list)
    examined: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    units: int = 0
    longest_s: float = 0.0
    unit_rows: int = 0
    finished: bool = False

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "step": self.step,
            "bounds": {step: [*map(_shown, pair)] if pair else None for step, pair in self.bounds.items()},
            "after": None if self.after is None else _shown(self.after),
            "window": [[_shown(item.lo), _shown(item.hi), item.rows] for item in self.window],
            "examined": self.examined,
            "rows": self.rows,
            "units": self.units,
            "longest_s": self.longest_s,
            "unit_rows": self.unit_rows,
            "finished": self.finished,
        }

    @classmethod
    def load(cls, value: dict[str, Any] | None, *, first: str) -> "LoopState":
        """From JSON; a new one, before the first step of its purge, when there is none."""
        if value is None:
            return cls(step=first)
        fields = dict(value)
        fields["bounds"] = {
            step: (_key(pair[0]), _key(pair[1])) if pair else None for step, pair in value["bounds"].items()
        }
        fields["after"] = None if value["after"] is None else _key(value["after"])
        fields["window"] = [Piece(_key(lo), _key(hi), rows) for lo, hi, rows in value["window"]]
        return cls(**fields)


def _shown(key: Key) -> int | list[int]:
    """A key as JSON; one of a single number is that number."""
    return key[0] if len(key) == 1 else list(key)


def _key(value: int | list[int]) -> Key:
    return (value,) if isinstance(value, int) else tuple(value)


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """What the windows are cut from.

    Args:
        make_unit: from step and piece to the unit of this attempt.
        most_rows: step to the most rows of a unit.
        first_rows: step to the rows of its first units; the usual number, where it has none.
        outlook: how much there is to do; None: nobody knows.
        removed: from rows by step to those of them that are gone.
        is_waited_for: others wait for the rows that a unit locks.
        limit: what all units together may remove; None: whatever they find.
    """

    walk: Walk
    make_unit: Callable[[str, Piece], AnyUnit]
    most_rows: Mapping[str, int]
    outlook: Outlook | None
    target_s: float
    window_units: int
    removed: Callable[[Mapping[str, int]], Mapping[str, int]] = dict
    is_waited_for: bool = True
    limit: Limit | None = None
    first_rows: Mapping[str, int] = field(default_factory=dict)


class Windows(Course[AnyUnit, UnitResult]):
    """Goes on where an earlier attempt stood."""

    def __init__(self, context: JobContext, conn: Connection, plan: WindowPlan) -> None:
        self._context = context
        self._conn = conn
        self._plan = plan
        self.state = LoopState.load(context.checkpoint(CHECKPOINT_LOOP), first=plan.walk.steps[0])
        self._outlook = plan.outlook
        if self._outlook is not None:
            self._outlook.resume(self.state.step, self.state.examined)
        self._size: UnitSize | None = None
        self._allowance = None if plan.limit is None else Allowance(plan.limit)
        self._open: dict[str, Piece] = {}
        self._refused: list[Piece] = []
        self._elapsed: list[float] = []
        self._window_done = 0
        self._repeated = 0

    def next_units(self) -> Iterator[AnyUnit] | None:
        """The units of the window that an earlier attempt has left, or of the next one."""
        if not self.state.window and not self._begin_window():
            self.state.finished = True
            self._save()
            return None
        units, window = [self._unit(item) for item in self.state.window], self.state.window
        if self._allowance is not None:
            units = self._allowance.begin(units, [item.rows for item in window], rows=self.state.rows)
        return iter(units)

    def _begin_window(self) -> bool:
        """Note the next window; False: there is none."""
        steps = self._plan.walk.steps
        remaining = steps[steps.index(self.state.step) :] if not self.state.finished else []
        for step in remaining:
            self._context.check()
            if step != self.state.step:
                self.state.step, self.state.after, self._size = step, None, None
            began_s = self._context.clock.boottime_s()
            self.state.window = self._pieces(step)
            if self._outlook is not None:
                took_s = self._context.clock.boottime_s() - began_s
                self._outlook.cut(sum(item.rows for item in self.state.window), took_s=took_s)
            if self.state.window:
                self._save()
                return True
        return False

    def _pieces(self, step: str) -> list[Piece]:
        bounds = self._bounds(step)
        if bounds is None:
            return []
        self._size = self._size or UnitSize(
            most_rows=self._plan.most_rows[step],
            target_s=self._plan.target_s,
            window_units=self._plan.window_units,
            is_waited_for=self._plan.is_waited_for,
            first_rows=self._plan.first_rows.get(step, FIRST_ROWS),
        )
        return self._plan.walk.pieces(
            self._conn,
            step,
            bounds,
            after=self.state.after,
            rows=self._size.within(self._context.throttle.setting.rows_per_s),
            count=self._count(self._size),
        )

    def _count(self, size: UnitSize) -> int:
        most = None if self._allowance is None else self._allowance.most_units
        return size.units if most is None else min(size.units, most)

    def _bounds(self, step: str) -> Bounds | None:
        if step not in self.state.bounds:
            self.state.bounds[step] = self._plan.walk.bounds(self._conn, step, self.state.bounds)
        return self.state.bounds[step]

    def _save(self) -> None:
        self._context.save_checkpoint(CHECKPOINT_LOOP, self.state.dump())

    def _unit(self, item: Piece) -> AnyUnit:
        unit = self._plan.make_unit(self.state.step, item)
        self._open[unit.unit_id] = item
        return unit

    def done(self, unit: AnyUnit, result: UnitResult, *, elapsed_s: float) -> Charge | None:
        """Count its rows; an earlier attempt's cost this one nothing.

        Raises: JobFailed: LIMIT_EXCEEDED.
        """
        item, state = self._open.pop(unit.unit_id), self.state
        rows = item.rows
        if self._allowance is not None and result.refused is not None:
            self._refused.append(item)
            self._allowance.refuse(unit, result.refused)
            return None
        state.rows[unit.step] = state.rows.get(unit.step, 0) + result.rows
        state.units += 1
        self._elapsed.append(elapsed_s)
        self._window_done += rows
        if self._outlook is not None:
            at_s = self._context.clock.boottime_s()
            took_s = None if result.repeated else elapsed_s
            self._outlook.done(unit.step, rows=rows, gone=result.rows, at_s=at_s, took_s=took_s)
        if result.repeated:
            self._repeated += rows
            return None
        state.longest_s = max(state.longest_s, elapsed_s)
        return result.rows, result.archive.bytes if result.archive else 0

    def parts(self, unit: AnyUnit, *, elapsed_s: float) -> Sequence[AnyUnit]:
        """Pieces of its piece, noted in its place; the next windows are smaller too."""
        self._elapsed.append(elapsed_s)
        item = self._open[unit.unit_id]
        parts = self._plan.walk.pieces(
            self._conn,
            self.state.step,
            (item.lo, item.hi),
            after=None,
            rows=max(1, item.rows // PARTS),
            count=PARTS,
        )
        if self._size is not None:
            self._size.cut(item.rows, parts=PARTS)
        if not parts or parts[0].reaches(item.hi):
            return [unit]
        if not parts[-1].reaches(item.hi):
            counted = sum(part.rows for part in parts)
            parts.append(Piece(parts[-1].after(), item.hi, max(0, item.rows - counted)))
        place = self.state.window.index(item)
        self.state.window[place : place + 1] = parts
        self._save()
        del self._open[unit.unit_id]
        units = [self._unit(part) for part in parts]
        if self._allowance is None:
            return units
        return self._allowance.divide(unit, units, [part.rows for part in parts])

    def ended(self) -> None:
        """Go on behind the window, with units of the size that it has taught."""
        assert not self._open, self._open
        done = list(takewhile(lambda item: item not in self._refused, self.state.window))
        self.state.examined += sum(item.rows for item in done)
        if done:
            self.state.after = done[-1].hi
        self.state.window, self._refused = [], []
        if self._allowance is not None:
            self._allowance.end()
        self._window_done = 0
        if self._size is not None:  # the window of an earlier attempt had another size
            self._size.learn(self._elapsed)
        self._elapsed = []

    def show(self, *, is_done: bool, force: bool) -> None:
        """Rows that were looked at, of about so many."""
        done, outlook = self.state.examined + self._window_done, self._outlook
        left_s = None
        if outlook is not None:
            outlook.bounds(self._context.throttle.setting)
            outlook.look(self._context.clock.boottime_s())
            left_s = outlook.left_s(self.state.step)
        self._context.progress(
            unit=UNIT,
            done=done,
            total=done if is_done else None if outlook is None else outlook.total,
            total_is_estimate=not is_done,
            repeated=self._repeated,
            removed=sum(self._plan.removed(self.state.rows).values()),
            left_s=left_s,
            force=force,
        )
