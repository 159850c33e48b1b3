"""Every interleaving of programs over a model in memory, with crashes, states seen before left out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark.targets.files.control_record import ControlRecord
from tests.spark.targets.control_programs import RECORD, Judge, Op, Program

Lock = tuple[Any, str, bool]
DONE: Op = ("DONE",)
START = ControlRecord(generation=1, epoch=1, stop=1, directory_device=0, directory_inode=0, own_inode=0)
NO_PROMISE = Judge()


@dataclass(frozen=True)
class Memory:
    """The control file, its locks, the rows, and the promises."""

    record: ControlRecord = START
    counter: int = 1
    locks: frozenset[Lock] = frozenset()
    judge: Judge = NO_PROMISE

    def outcomes(self, actor: str, op: Op) -> list[tuple[Any, "Memory"]]:
        """What may come of an operation; nothing while it must wait."""
        match op:
            case ("TRY", key):
                taken = self._taken(actor, key, True)
                return [(False, self)] if taken is None else [(True, taken)]
            case ("LOCK", key, exclusive):
                taken = self._taken(actor, key, exclusive)
                return [] if taken is None else [(True, taken)]
            case ("LOCK_OR_GIVE_UP", key, exclusive):
                taken = self._taken(actor, key, exclusive)
                return [(False, self)] if taken is None else [(True, taken)]
            case ("UNLOCK", key):
                left = frozenset(lock for lock in self.locks if lock[:2] != (key, actor))
                return [(None, replace(self, locks=left))]
            case ("READ",):
                # As ControlFile.read does: a counter left behind by the dead is raised by who reads.
                is_mended = self._taken(actor, RECORD, True) is not None
                return [(self.record, replace(self, counter=self.record.stop) if is_mended else self)]
            case ("STOP",):
                return [(self.counter, self)]
            case ("PUT", record):
                return [(None, replace(self, record=record, judge=self.judge.judge_record(record)))]
            case ("COUNT", value):
                return [(None, replace(self, counter=value))]
            case ("ROWS",):
                return [(self.judge.active(), self)]
            case ("ROW_STATE", name):
                return [(self.judge.state_of(name), self)]
        judge = self.judge.judge(actor, op)
        return [(None, replace(self, judge=judge if judge.fault else judge.judge_record(self.record)))]

    def without(self, actor: str) -> "Memory":
        """As the kernel leaves it when a process dies."""
        return replace(self, locks=frozenset(lock for lock in self.locks if lock[1] != actor))

    def _taken(self, actor: str, key: Any, exclusive: bool) -> "Memory | None":
        for held, owner, is_exclusive in self.locks:
            if held == key and owner != actor and (exclusive or is_exclusive):
                return None
        return replace(self, locks=self.locks | {(key, actor, exclusive)})


Programs = Mapping[str, Callable[[], Program]]


@dataclass
class Histories:
    """Programs cannot be copied, but run again: what one does next follows from all that it was answered."""

    programs: Programs
    _ids: dict[tuple[str, int, Any], int] = field(default_factory=dict)
    _results: list[tuple[Any, ...]] = field(default_factory=lambda: [()])
    _next: dict[tuple[str, int], Op] = field(default_factory=dict)

    def next_op(self, name: str, history: int) -> Op:
        key = (name, history)
        if key not in self._next:
            program = self.programs[name]()
            self._next[key] = _replay(program, self._results[history])
        return self._next[key]

    def after(self, name: str, history: int, result: Any) -> int:
        key = (name, history, result)
        if key not in self._ids:
            self._ids[key] = len(self._results)
            self._results.append((*self._results[history], result))
        return self._ids[key]


def _replay(program: Program, results: tuple[Any, ...]) -> Op:
    try:
        op = next(program)
        for result in results:
            op = program.send(result)
    except StopIteration:
        return DONE
    finally:
        program.close()
    return op


@dataclass(frozen=True)
class State:
    """Actors are (the program that runs, its history, who is it to the locks)."""

    memory: Memory
    actors: tuple[tuple[str, int], ...]
    crashes: int


@dataclass
class Exploration:
    """What was found: `fault` and the steps that led there, or none in so many states."""

    states: int = 0
    ends: int = 0
    fault: str = ""
    steps: tuple[str, ...] = ()


def explore(
    programs: Programs,
    *,
    actors: tuple[str, ...],
    crashes: int = 0,
    after_crash: Mapping[str, str] | None = None,
    judges_end: bool = True,
    states_max: int,
) -> Exploration:
    """Walk all interleavings of the actors.

    Args:
        crashes: so many actors may die, at any step.
        after_crash: the program that is started when an actor has died, by the actor's program.
        judges_end: whether rows and record must agree when all have ended.
        states_max: more states than this is a fault of its own.
    """
    histories = Histories(programs)
    start = State(Memory(), tuple((name, 0) for name in actors), crashes)
    came_from: dict[State, tuple[State, str] | None] = {start: None}
    todo, found = [start], Exploration()
    while todo:
        state = todo.pop()
        found.states += 1
        fault = state.memory.judge.fault
        moves = [] if fault else list(_moves(state, histories, after_crash or {}))
        if not fault and not moves:
            found.ends += 1
            fault = _fault_at_end(state, histories) if judges_end else ""
        if not fault and found.states > states_max:
            fault = f"more than {states_max} states"
        if fault:
            found.fault, found.steps = fault, _steps_to(state, came_from)
            return found
        for label, after in moves:
            if after not in came_from:
                came_from[after] = (state, label)
                todo.append(after)
    return found


def _moves(state: State, histories: Histories, after_crash: Mapping[str, str]) -> Iterator[tuple[str, State]]:
    for place, (name, history) in enumerate(state.actors):
        op = histories.next_op(name, history)
        if op is DONE:
            continue
        who = f"{name}/{place}"
        for result, memory in state.memory.outcomes(who, op):
            actor = (name, histories.after(name, history, result))
            yield f"{who} {op} -> {result}", State(memory, _at(state, place, actor), state.crashes)
        if state.crashes and history:
            memory = state.memory.without(who)
            successor = (after_crash.get(name, "nothing"), 0)
            yield f"{who} dies", State(memory, _at(state, place, successor), state.crashes - 1)


def _at(state: State, place: int, actor: tuple[str, int]) -> tuple[tuple[str, int], ...]:
    return (*state.actors[:place], actor, *state.actors[place + 1 :])


def _fault_at_end(state: State, histories: Histories) -> str:
    waiting = [name for name, history in state.actors if histories.next_op(name, history) is not DONE]
    if waiting:
        return f"deadlock of {', '.join(waiting)}"
    if state.memory.locks:
        return f"locks are left: {sorted(state.memory.locks, key=str)}"
    active, held = set(state.memory.judge.active()), set(state.memory.record.ranges)
    if active != held:
        return f"at the end the rows say {active}, the record {held}"
    return ""


def _steps_to(state: State, came_from: Mapping[State, tuple[State, str] | None]) -> tuple[str, ...]:
    steps = []
    before = came_from[state]
    while before is not None:
        steps.append(before[1])
        before = came_from[before[0]]
    return tuple(reversed(steps))
