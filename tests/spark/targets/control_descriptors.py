"""The same programs with real descriptors in one process, and one schedule at a time."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from spark.erase.overwrite import environment_lock
from spark.erase.overwrite.environment_lock import EnvironmentLock
from spark.targets.files.control_file import ControlFile
from spark.targets.files.system_calls import SystemCalls
from tests.spark.targets.control_directory import make_environment
from tests.spark.targets.control_memory import DONE, Memory
from tests.spark.targets.control_programs import ENVIRONMENT, Judge, Op, Program

STEPS_MAX = 5_000


class Unsynced(SystemCalls):
    """Real files without the wait for the medium: nobody loses power here."""

    def fsync(self, fd: int) -> None:
        pass

    def fdatasync(self, fd: int) -> None:
        pass


class World(Protocol):
    judge: Judge

    def attempt(self, actor: str, op: Op) -> tuple[bool, Any]:
        """Do one operation: whether it was done (else the actor waits), and its result."""
        ...

    def crash(self, actor: str) -> None: ...


class InMemory:
    """The model as a world that goes one way."""

    def __init__(self) -> None:
        self.memory = Memory()

    @property
    def judge(self) -> Judge:
        return self.memory.judge

    def attempt(self, actor: str, op: Op) -> tuple[bool, Any]:
        outcomes = self.memory.outcomes(actor, op)
        if not outcomes:
            return False, None
        result, self.memory = outcomes[0]
        return True, result

    def crash(self, actor: str) -> None:
        self.memory = self.memory.without(actor)


class OnDisk:
    """A directory with a control file; every actor has a descriptor of its own, as processes have."""

    def __init__(self, directory: Path, *, calls: SystemCalls) -> None:
        self.directory = make_environment(directory)
        self.calls = calls
        self.judge = Judge()
        self._files: dict[str, ControlFile] = {}
        self._environments: dict[str, EnvironmentLock] = {}
        with ControlFile.open(directory, create=True, calls=calls) as file:
            file.change(lambda now: now.claimed(1))

    def attempt(self, actor: str, op: Op) -> tuple[bool, Any]:
        done, result = self._attempt(actor, op)
        if done:
            self.judge = self.judge.judge(actor, op)
            if not self.judge.fault:
                self.judge = self.judge.judge_record(self._file("observer").read())
        return done, result

    def _attempt(self, actor: str, op: Op) -> tuple[bool, Any]:
        file = self._file(actor)
        match op:
            case ("TRY", key) if key == ENVIRONMENT:
                lock = environment_lock.try_lock(self.directory, calls=self.calls)
                if lock is not None:
                    self._environments[actor] = lock
                return True, lock is not None
            case ("UNLOCK", key) if key == ENVIRONMENT:
                self._environments.pop(actor).release()
            case ("TRY", number):
                return True, file.try_lock_file(number, exclusive=True)
            case ("LOCK", number, exclusive):
                return file.try_lock_file(number, exclusive=exclusive), True
            case ("LOCK_OR_GIVE_UP", number, exclusive):
                return True, file.try_lock_file(number, exclusive=exclusive)
            case ("UNLOCK", number):
                file.unlock_file(number)
            case ("READ",):
                return True, file.read()
            case ("STOP",):
                return True, file.stop_counter()
            case ("CHANGE", edit):
                return file.change(lambda now: edit(now, self.judge.active())) is not None, None
            case ("ROW_STATE", name):
                return True, self.judge.state_of(name)
        return True, None

    def crash(self, actor: str) -> None:
        """What the kernel does: it closes the descriptors, and nothing else."""
        if actor in self._environments:
            self._environments.pop(actor).release()
        if actor in self._files:
            self._files.pop(actor).close()

    def close(self) -> None:
        for actor in (*self._environments, *self._files):
            self.crash(actor)

    def locks_left(self) -> list[str]:
        """What is still locked when nobody should hold anything."""
        with ControlFile.open(self.directory, create=False, calls=self.calls) as file:
            left = [str(number) for number in range(3) if not file.try_lock_file(number, exclusive=True)]
        return left + ([ENVIRONMENT] if environment_lock.is_in_use(self.directory) else [])

    def _file(self, actor: str) -> ControlFile:
        if actor not in self._files:
            self._files[actor] = ControlFile.open(self.directory, create=False, calls=self.calls)
        return self._files[actor]


def run_schedule(
    world: World,
    programs: Mapping[str, Callable[[], Program]],
    *,
    actors: Sequence[str],
    schedule: Sequence[int],
    after_crash: Mapping[str, str],
) -> list[str]:
    """Let actors go by turns: `schedule` says who is next, and minus that he dies; then all in turn.

    Returns: the steps; the last one names the fault, if there is one.
    """
    names = list(actors)
    running: list[Program | None] = [programs[name]() for name in names]
    pending: list[Op] = [next(program, DONE) for program in running if program is not None]
    steps: list[str] = []
    idle = 0
    for turn in range(STEPS_MAX):
        place = schedule[turn] if turn < len(schedule) else turn % len(names)
        who = abs(place) % len(names)
        label = f"{names[who]}/{who}"
        if place < 0 and pending[who] is not DONE:
            world.crash(label)
            steps.append(f"{label} dies")
            names[who] = after_crash.get(names[who], names[who])
            running[who] = programs[names[who]]()
            pending[who] = next(running[who], DONE)  # type: ignore[arg-type]
            continue
        idle = idle + 1 if turn >= len(schedule) else 0
        if pending[who] is not DONE:
            done, result = world.attempt(label, pending[who])
            if done:
                idle = 0
                steps.append(f"{label} {pending[who]} -> {result}")
                pending[who] = _next(running[who], result)
        if world.judge.fault:
            return [*steps, world.judge.fault]
        if all(op is DONE for op in pending):
            return steps
        if idle > len(names):
            return [*steps, f"deadlock: {pending}"]
    return [*steps, "no end"]


def _next(program: Program | None, result: Any) -> Op:
    assert program is not None
    try:
        return program.send(result)
    except StopIteration:
        return DONE
