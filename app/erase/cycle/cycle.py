"""The loop of a cycle: which file is next, and what is to be done where none is.

Invariants:
- a file is taken in ascending order, never while a protection covers it, never with a cause against it;
- a file that was begun is finished by the plan that it was begun by;
- all waiting happens between rounds, and a long wait gives everything back.

Source: je-data-eraser; facts eraser-behaviour, 3; design.md, Erase.
"""

from app.erase.cycle.attempt import Attempt
from app.erase.cycle.file_work import Blocked, FileLeft, FileWork
from app.erase.cycle.lateness import warn_if_late
from app.erase.cycle.obstacles import Obstacles, waits_for
from app.erase.cycle.planning import PASSING, log_signature, make_plan
from app.erase.messages import Message
from app.erase.rows import REMAINING, CycleState, ErasureFile
from app.protection.service import active_protections, protected_files
from app.stores.rows import StoreMode
from spark.erase.calls.calls import Mode
from spark.erase.reasons import Cause


class CycleLoop:
    """The files of one cycle in the hands of one attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.blocked: dict[int, Blocked] = {}

    def run(self) -> CycleState:
        """Work until every file is done, or nothing can be done for good.

        Returns: COMPLETE, or INCOMPLETE where files remain and nothing would free them by itself.
        Raises: JobWaiting, JobStopped, JobFailed, EndReached.
        """
        record = self.attempt.record
        while True:
            self.attempt.look()
            if self.attempt.wants_plan or self._is_planned_as_closed():
                make_plan(self.attempt)
            remaining = record.files(*REMAINING)
            if not remaining:
                return CycleState.COMPLETE
            warn_if_late(self.attempt, remaining)
            obstacles = self._obstacles(remaining)
            free = [file for file in remaining if file.number not in obstacles.by_file]
            if free:
                first = min(free, key=lambda file: file.number)
                assert first.was_written or not first.causes, f"{first.number} has a cause against it"
                self._work(first)
            elif not self._plan_again(obstacles):
                record.note(Message.WAITING, causes=obstacles.shown())
                waiting = waits_for(self.attempt, obstacles)
                if waiting is None:
                    return CycleState.INCOMPLETE
                raise waiting

    def _is_planned_as_closed(self) -> bool:
        """Whether a plan made under JE's lock is left, and the store is LIVE; made again it needs no lock."""
        return self.attempt.store.mode == StoreMode.LIVE and self.attempt.cycle.mode == Mode.CLOSED

    def _work(self, file: ErasureFile) -> None:
        try:
            FileWork(self.attempt, file).run()
        except FileLeft as left:
            if left.blocked is not None:
                self.blocked[file.number] = left.blocked
        finally:
            self.attempt.works_at = ""

    def _obstacles(self, remaining: list[ErasureFile]) -> Obstacles:
        """What stands in the way of each file; those without are free."""
        now, numbers = self.attempt.now, [file.number for file in remaining]
        store = self.attempt.store.id
        record = self.attempt.record
        held = record.read(lambda db: protected_files(db, store, numbers, now=now))
        active = record.read(lambda db: active_protections(db, store, now=now))
        found = Obstacles(protections={row.id: row for row in held.values()})
        found.seen = frozenset((row.id, row.version) for row in active)
        for file in remaining:
            blocked = self.blocked.get(file.number)
            if file.number in held:
                found.by_file[file.number] = str(Cause.PROTECTED)
            elif file.causes and not file.was_written:
                found.by_file[file.number] = str(file.causes[0][0])
            elif blocked is not None and blocked.until > now:
                found.by_file[file.number] = blocked.waiting_on.kind
                found.blocked.append(blocked)
        return found

    def _plan_again(self, obstacles: Obstacles) -> bool:
        """Make the plan again where the log has moved on and a file could have become free."""
        if not PASSING & set(obstacles.by_file.values()):
            return False
        plan = self.attempt.cycle.plan or {}
        if log_signature(self.attempt.directory) == plan.get("signature"):
            return False
        make_plan(self.attempt)
        return True
