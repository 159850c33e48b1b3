"""What the units of one lease took of Spark: where to find them there, and what they cost."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from spark.targets.task import TaskRun

KEPT_MAX: Final = 50
"""Groups and stages that are named: the newest."""


@dataclass(slots=True)
class SparkUse:
    """Of one lease, up to now.

    Args:
        groups, stages: of Spark, as its UI and its event log have them, the newest last. Units of other jobs
            may have run in the same.
        task_s, cpu_s: of all tasks together, in Python.
        memory_bytes: the highest of any worker that has run one.
    """

    groups: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_MAX))
    stages: deque[int] = field(default_factory=lambda: deque(maxlen=KEPT_MAX))
    tasks: int = 0
    task_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0

    def add(self, ran: TaskRun) -> None:
        """Count a task that has ended."""
        if ran.group not in self.groups:
            self.groups.append(ran.group)
        if ran.stage not in self.stages:
            self.stages.append(ran.stage)
        self.tasks += 1
        self.task_s += ran.seconds
        self.cpu_s += ran.cpu_seconds
        self.memory_bytes = max(self.memory_bytes, ran.memory_bytes)

    def document(self) -> dict[str, Any]:
        """As it is kept with a job."""
        return {
            "groups": list(self.groups),
            "stages": list(self.stages),
            "tasks": self.tasks,
            "task_s": round(self.task_s, 3),
            "cpu_s": round(self.cpu_s, 3),
            "memory_bytes": self.memory_bytes,
        }
