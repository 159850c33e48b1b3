"""A slot lent to one job: a session on a thread of its own.

Invariants:
- a group id is used by one lease only, so a cancel never hits a later one;
- after `cancel` no job of Spark starts under the lease, and `run` raises SparkJobCancelled;
- what a lease leaves behind (local properties, tags, views, confs, functions) is gone before the next begins.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from pyspark.sql import SparkSession

from spark.snapshot import JobClass

T = TypeVar("T")


class Lease:
    """A slot lent to one job; a context manager that gives it back."""

    job_id: str
    job_class: JobClass
    group: str

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, function: Callable[[SparkSession], T], *, description: str | None = None) -> T:
        """Run a function in the slot's thread and wait for it; one at a time, as often as wanted.

        Every job of Spark that it starts in that thread is in this lease's group, tag and FAIR pool.

        Raises: SparkJobCancelled: cancel() was called, before or meanwhile.
            SparkLost: the JVM is gone; the lease is of no more use.
            SparkJobFailed: anything else; `__cause__` is the error itself.
        """
        raise NotImplementedError

    def cancel(self, why: str) -> None:
        """Ask for the end of what runs and refuse what follows. Any thread, at once, any number of times."""
        raise NotImplementedError

    def close(self) -> None:
        """Give the slot back, cleaned; cancels what still runs and waits for it, with a bound. Idempotent."""
        raise NotImplementedError
