"""The lines of jobs in the log: one for each transition, written once its transaction is committed.

Rules:
- `change_job` and `add_job` write every state of a job, and ask for its line here: no kind can miss one;
- a job that looks again and still waits for the same leaves no line, each attempt that failed leaves one;
- what was said last of a job is known to this process alone: another one says once more what it waits for.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import structlog

from app.jobs.states import TERMINAL, JobState

SAID_MAX: Final = 10_000
SAME_KIND_AGAIN_S: Final = 60.0
"""Of a wait whose reference alone is another: no more than one line in so long."""
logger = structlog.get_logger("lethe.jobs")
QUIET_NAMES: Final = ("detail", "state", "waiting_on")
NAMES: Final[Mapping[JobState, str]] = {
    JobState.QUEUED: "job requeued",
    JobState.RUNNING: "job started",
    JobState.WAITING: "job waits",
    JobState.PAUSING: "job pausing",
    JobState.PAUSED: "job paused",
    JobState.ABORTING: "job aborting",
    JobState.ABORTED: "job ended",
    JobState.SUCCEEDED: "job ended",
    JobState.FAILED: "job failed",
    JobState.ABANDONED: "job ended",
}


@dataclass(frozen=True, slots=True)
class Step:
    """A change of a job's row, as it was committed.

    Args:
        facts: of an event of state; None: the state is what it was.
        waiting_on: as it was written; None: it was left as it is.
        advanced: something was gained: a wait is over.
    """

    job_id: str
    kind: str
    store: str | None
    caller: str
    state: JobState
    attempt: int
    retries: int
    facts: Mapping[str, Any] | None = None
    waiting_on: Sequence[Mapping[str, Any]] | None = None
    advanced: bool = False

    @property
    def is_news(self) -> bool:
        """Whether anybody might want a line."""
        return self.facts is not None or self.waiting_on is not None or self.advanced


@dataclass(frozen=True, slots=True)
class _Wait:
    kinds: tuple[str, ...]
    refs: tuple[str, ...]
    retries: int
    at_s: float


class JobLines:
    """Says each transition once; safe in threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waits: OrderedDict[str, _Wait] = OrderedDict()
        self._lock = Lock()

    def say(self, step: Step) -> None:
        """Write the line of a change, if it has one."""
        with self._lock:
            name = self._name(step)
        if name is not None:
            is_trouble = step.state in (JobState.FAILED, JobState.ABANDONED) and step.facts is not None
            (logger.warning if is_trouble else logger.info)(name, **_fields(step))

    def _name(self, step: Step) -> str | None:
        if step.waiting_on:
            return self._wait(step)
        if step.facts is None:  # it goes on, or never waited
            return "job goes on" if self._waits.pop(step.job_id, None) is not None else None
        if step.state is JobState.RUNNING and "actor" in step.facts:
            return "job resumed"
        if step.state is JobState.RUNNING and step.job_id in self._waits:
            return None  # it looks whether what it waits for has come
        self._waits.pop(step.job_id, None)
        if step.state is JobState.QUEUED and step.attempt == 0 and "actor" not in step.facts:
            return "job submitted"
        return NAMES[step.state]

    def _wait(self, step: Step) -> str | None:
        waiting_on = step.waiting_on or ()
        wait = _Wait(
            kinds=tuple(sorted(str(item["kind"]) for item in waiting_on)),
            refs=tuple(sorted(str(item["ref"]) for item in waiting_on)),
            retries=step.retries,
            at_s=self._clock(),
        )
        before = self._waits.get(step.job_id)
        has_failed = step.retries > 0 and (before is None or before.retries != step.retries)
        if before is not None and before.kinds == wait.kinds and not has_failed:
            is_same = before.refs == wait.refs or wait.at_s - before.at_s < SAME_KIND_AGAIN_S
            if is_same:
                return None
        self._waits[step.job_id] = wait
        self._waits.move_to_end(step.job_id)
        if len(self._waits) > SAID_MAX:
            self._waits.popitem(last=False)
        return "job attempt failed" if has_failed else NAMES[JobState.WAITING]


def _fields(step: Step) -> dict[str, Any]:
    facts = step.facts or {}
    fields: dict[str, Any] = {
        "job_id": step.job_id,
        "kind": step.kind,
        "store": step.store,
        "caller": step.caller,
        "state": step.state.value,
        "attempt": step.attempt,
        "retries": step.retries or None,
        "waiting_on": [f"{item['kind']} {item['ref']}" for item in step.waiting_on or ()] or None,
        **{name: value for name, value in facts.items() if name not in QUIET_NAMES},
        "detail": facts.get("detail"),
    }
    return {name: value for name, value in fields.items() if value is not None or name == "store"}


LINES: Final = JobLines()
"""Of this process."""
assert frozenset(NAMES) == frozenset(JobState)
assert all(NAMES[state] in ("job ended", "job failed") for state in TERMINAL)
