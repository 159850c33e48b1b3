"""A session that was started, as its lenders and its watch hold it; whoever starts it imports pyspark."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark.pool.jvm import Jvm
from spark.pool.options import SparkOptions
from spark.pool.scratch import Scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class StartedSession:
    """A session and what lies below it.

    Args:
        gateway: py4j's, to which the connections of all threads belong.
        took_s: how long the start took.
        uses_cds: whether the JVM has mapped the class data archive.
        log_file: where the JVM writes.
    """

    session: "SparkSession"
    jvm: Jvm
    gateway: Any
    scratch: Scratch
    took_s: float
    uses_cds: bool
    log_file: Path

    @property
    def alive(self) -> bool:
        """Whether the process of the JVM runs."""
        return self.jvm.alive


def release_thread(gateway: Any) -> None:
    """Close this thread's connection to the JVM; for threads that end before the JVM does."""
    client = gateway._gateway_client
    connection = client.get_thread_connection()
    if connection is None:
        return
    with suppress(ValueError):
        client.deque.remove(connection)
    connection.close()


def begin_session(options: SparkOptions, *, should_stop: Callable[[], bool]) -> StartedSession:
    """`start_session`, which imports pyspark: not before somebody needs a session."""
    from spark.pool.session import start_session

    return start_session(options, should_stop=should_stop)


def end_session(started: StartedSession, *, stop_timeout_s: float) -> None:
    """`discard`, of whoever has started it."""
    from spark.pool.session import discard

    discard(started, stop_timeout_s=stop_timeout_s)
