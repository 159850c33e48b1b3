"""The only place that builds a SparkSession, and that clears up after a dead one.

Invariants:
- there is at most one JVM of ours in the process; `start_session` refuses a second;
- `start_session` ends within its timeout, whatever the JVM does, and leaves no process when it fails;
- after `discard` nothing of the session is left: no process, thread, descriptor, or state in pyspark.
"""

from collections.abc import Callable

from pyspark.sql import SparkSession

from spark.options import SparkOptions


def start_session(options: SparkOptions, *, should_stop: Callable[[], bool] = lambda: False) -> SparkSession:
    """Start a JVM and a session on it.

    Args:
        should_stop: asked while the start lasts; true ends it with the reason STOPPED.
    Raises: SparkStartFailed: with the reason; no process is left.
    """
    raise NotImplementedError


def discard(session: SparkSession, *, stop_timeout_s: float = 10.0) -> None:
    """End a session and its JVM, whether it lives, hangs or is dead; afterwards a new one may be started.

    Args:
        stop_timeout_s: how long a living context may take for a clean stop; 0: kill at once.
    """
    raise NotImplementedError
