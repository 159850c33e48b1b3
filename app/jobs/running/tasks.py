"""What a kind of job is: a task function, and the proof that nothing of it writes any more."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.jobs.running.context import JobContext


@dataclass(frozen=True, slots=True)
class TaskKind:
    """One kind of job.

    Args:
        run: does the work from its checkpoints on and returns the result; raises JobSignal.
        prove_silence: returns only when nothing of the job writes at its target any more, whoever ran it.
    """

    run: Callable[[JobContext], Mapping[str, Any]]
    prove_silence: Callable[[JobContext], None]


TaskKinds = Mapping[str, TaskKind]
