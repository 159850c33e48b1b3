"""The loop of a purge: steps in the document's order, windows of ranges, units on an engine.

Invariants:
- a window is noted before its first unit, together with the end of the one before; a crash in between repeats
  a finished window, whose units find their ledger rows;
- a unit that failed transiently is tried again before the step goes on; nothing is skipped;
- a unit that the target gave up for its length is tried again in parts;
- the range of a step is computed once, when the step begins, as the document does;
- between two units the job's stop and its throttle are looked at.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from app.jobs.engines.engine import EngineLease
from app.jobs.errors import JobStopped
from app.jobs.models import ThrottleSetting, WaitingOn
from app.jobs.running.context import JobContext
from app.sweeps.sizing import UnitSize
from spark.targets.connection import Connection
from spark.targets.errors import TargetError, TargetStatementTimeout
from spark.targets.transaction import AnyUnit, UnitResult
from spark.targets.walk import Bounds, Key, Piece, Walk
from spark.targets.work import Outcome

CHECKPOINT_LOOP = "loop"
UNIT = "rows examined"
PARTS = 4
"""Of a unit that was too long."""
RETRY_FIRST_S = 0.05
RETRY_MAX_S = 2.0
SHOWN_AFTER_TRIES = 1
HELD_UP_MAX_CHARS = 200

PurgeLease = EngineLease[AnyUnit, UnitResult]


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
class LoopPlan:
    """What the loop is to do.

    Args:
        make_unit: from step and piece to the unit of this attempt.
        most_rows: step to the most rows of a unit.
        total_rows: an estimate of the rows that will be looked at.
        removed: from rows by step to those of them that are gone.
        keep: called again and again between units: what the purge holds meanwhile is to be renewed.
    """

    walk: Walk
    make_unit: Callable[[str, Piece], AnyUnit]
    most_rows: Mapping[str, int]
    total_rows: int | None
    target_s: float
    window_units: int
    retries_max: int
    keep: Callable[[], None] = lambda: None
    removed: Callable[[Mapping[str, int]], Mapping[str, int]] = dict


class PurgeLoop:
    """Runs the steps from where an earlier attempt stood."""

    def __init__(self, context: JobContext, conn: Connection, lease: PurgeLease, plan: LoopPlan) -> None:
        self._context = context
        self._conn = conn
        self._lease = lease
        self._plan = plan
        self.state = LoopState.load(context.checkpoint(CHECKPOINT_LOOP), first=plan.walk.steps[0])
        self._shown = ThrottleSetting()
        self._window_done = 0
        self._repeated = 0
        self._is_held_up = False

    def run(self) -> LoopState:
        """Run to the end.

        Raises: JobStopped at a safe point; TargetError when a unit failed for good or too often.
        """
        self._show_progress(force=True)
        if self.state.window:
            self._run_window()
        steps = self._plan.walk.steps
        remaining = steps[steps.index(self.state.step) :] if not self.state.finished else []
        for step in remaining:
            if step != self.state.step:
                self.state.step, self.state.after = step, None
            self._run_step(step)
        self.state.finished = True
        self._save()
        self._show_progress(force=True)
        return self.state

    def _run_step(self, step: str) -> None:
        bounds = self._bounds(step)
        if bounds is None:
            return
        size = UnitSize(
            most_rows=self._plan.most_rows[step],
            target_s=self._plan.target_s,
            window_units=self._plan.window_units,
        )
        while True:
            self._context.check()
            self._plan.keep()
            self.state.window = self._plan.walk.pieces(
                self._conn,
                step,
                bounds,
                after=self.state.after,
                rows=size.within(self._context.throttle.setting.rows_per_s),
                count=size.units,
            )
            if not self.state.window:
                return
            self._save()
            size.learn(self._run_window())

    def _bounds(self, step: str) -> Bounds | None:
        if step not in self.state.bounds:
            self.state.bounds[step] = self._plan.walk.bounds(self._conn, step, self.state.bounds)
        return self.state.bounds[step]

    def _save(self) -> None:
        self._context.save_checkpoint(CHECKPOINT_LOOP, self.state.dump())

    # -- one window

    def _run_window(self) -> list[float]:
        """Run every unit of the window; returns how long each took."""
        step = self.state.step
        pending = deque((self._plan.make_unit(step, item), item, 0) for item in self.state.window)
        under_way: dict[str, tuple[Piece, int]] = {}
        elapsed: list[float] = []
        self._window_done = 0

        def draw() -> Iterator[AnyUnit]:
            while pending:
                unit, item, tries = pending.popleft()
                under_way[unit.unit_id] = (item, tries)
                if not self._may_start(tries):
                    pending.appendleft((unit, item, tries))
                    return
                yield unit

        while pending:
            for outcome in self._lease.map(draw()):
                item, tries = under_way.pop(outcome.unit.unit_id)
                if outcome.error is not None:
                    self._retry_or_raise(outcome.error, tries)
                    if isinstance(outcome.error, TargetStatementTimeout):
                        elapsed.append(outcome.elapsed_s)  # the next windows are smaller
                        parts = self._divide(step, item)
                        pending.extend((self._plan.make_unit(step, part), part, tries + 1) for part in parts)
                    else:
                        pending.append((outcome.unit, item, tries + 1))
                    continue
                elapsed.append(outcome.elapsed_s)
                self._account(outcome, item)
            self._context.check()
        self._finish_window()
        return elapsed

    def _divide(self, step: str, item: Piece) -> list[Piece]:
        """The parts of a piece of the window that was too long for one statement; itself: it has none."""
        parts = self._plan.walk.pieces(
            self._conn,
            step,
            (item.lo, item.hi),
            after=None,
            rows=max(1, item.rows // PARTS),
            count=PARTS,
        )
        if not parts or parts[0].hi >= item.hi:
            return [item]
        if parts[-1].hi < item.hi:
            counted = sum(part.rows for part in parts)
            parts.append(Piece(parts[-1].after(), item.hi, max(0, item.rows - counted)))
        place = self.state.window.index(item)
        self.state.window[place : place + 1] = parts
        self._save()
        return parts

    def _may_start(self, tries: int) -> bool:
        """Wait for the throttle and for the pause after a failure; False: the job must stop."""
        pause_s = min(RETRY_MAX_S, RETRY_FIRST_S * 2**tries) * (0.5 + random.random()) if tries else 0.0  # noqa: S311
        pause_until = self._context.clock.boottime_s() + pause_s
        self._show_throttle()
        while self._context.stop_cause is None:
            throttled_s = self._context.throttle.delay_s()
            left_s = max(throttled_s, pause_until - self._context.clock.boottime_s())
            if left_s <= 0:
                return True
            self._plan.keep()  # an engine draws its units in the thread that runs this loop
            self._show_throttle()
            self._context.sleep(left_s)
        return False

    def _show_throttle(self) -> None:
        setting = self._context.throttle.setting
        if setting != self._shown:
            self._shown = setting
            bounded = setting.model_dump(exclude_none=True)
            self._context.show_throttle(setting if bounded else None, "REQUESTED" if bounded else None)

    def _retry_or_raise(self, error: TargetError, tries: int) -> None:
        cause = self._context.stop_cause
        if cause is not None:
            raise JobStopped(cause)
        if not error.transient or tries >= self._plan.retries_max:
            raise error
        if tries == SHOWN_AFTER_TRIES and not self._is_held_up:
            self._is_held_up = True
            self._context.show_waiting([WaitingOn(kind=error.code, ref=error.detail[:HELD_UP_MAX_CHARS])])

    def _account(self, outcome: Outcome[AnyUnit, UnitResult], item: Piece) -> None:
        result = outcome.result
        assert result is not None
        if self._is_held_up:
            self._is_held_up = False
            self._context.show_waiting([])
        step = outcome.unit.step
        self.state.rows[step] = self.state.rows.get(step, 0) + result.rows
        self.state.units += 1
        self._window_done += item.rows
        self._plan.keep()
        if result.repeated:
            self._repeated += item.rows
        else:
            self.state.longest_s = max(self.state.longest_s, outcome.elapsed_s)
            byte_count = result.archive.bytes if result.archive else 0
            self._context.throttle.charge(rows=result.rows, byte_count=byte_count, worked_s=outcome.elapsed_s)
        self._show_progress()

    def _finish_window(self) -> None:
        self.state.examined += sum(item.rows for item in self.state.window)
        self.state.after = self.state.window[-1].hi
        self.state.window = []
        self._window_done = 0

    def _show_progress(self, *, force: bool = False) -> None:
        done = self.state.examined + self._window_done
        total = done if self.state.finished else self._plan.total_rows
        self._context.progress(
            unit=UNIT,
            done=done,
            total=total,
            total_is_estimate=not self.state.finished,
            repeated=self._repeated,
            removed=sum(self._plan.removed(self.state.rows).values()),
            force=force,
        )
