"""What a job has taken of Spark, kept with the job: where to find it on Spark's pages, and what it cost."""

from typing import Any, Final

from app.jobs.queries import CHECKPOINT_USE
from app.jobs.running.context import JobContext

KEPT_MAX: Final = 50
"""Groups and stages that are named: the newest."""


class UseNotes:
    """Adds what one lease takes to what earlier ones of the job, and its earlier attempts, have taken."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._earlier: dict[str, Any] | None = None

    def note(self, use: dict[str, Any]) -> None:
        """Keep what the lease has taken up to now.

        Args:
            use: as `SparkUse.document` has it.
        """
        if self._earlier is None:
            self._earlier = self._context.checkpoint(CHECKPOINT_USE) or {}
        self._context.save_checkpoint(CHECKPOINT_USE, together(self._earlier, use))


def together(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Two documents of one job as one."""
    if not earlier:
        return later
    added = {name: earlier[name] + later[name] for name in ("tasks", "task_s", "cpu_s")}
    named = {
        name: list(dict.fromkeys([*earlier[name], *later[name]]))[-KEPT_MAX:] for name in ("groups", "stages")
    }
    return named | added | {"memory_bytes": max(earlier["memory_bytes"], later["memory_bytes"])}


def name_on_spark(context: JobContext) -> str:
    """The job's id, kind and store, as Spark's pages show them."""
    return " ".join(part for part in (context.job.id, context.job.kind, context.job.store) if part)
