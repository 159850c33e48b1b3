"""Whether the JVM below still serves: its process, and a call that must be answered.

Invariants:
- a verdict never waits for the JVM;
- a process that has ended is told at once; one that is only slow (garbage collection) gets `patience_s`.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from spark.session import StartedSession

INTERVAL_S: Final = 1.0


class Watch:
    """Looks at one JVM at a time, by a thread of its own for the calls."""

    def __init__(self, *, patience_s: float, monotonic: Callable[[], float]) -> None:
        """Make a watch.

        Args:
            patience_s: how long the JVM may leave calls unanswered.
        """
        self._patience_s = patience_s
        self._monotonic = monotonic
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lethe-spark-probe")
        self._asking: Future[bool] | None = None
        self._asked_at = 0.0
        self._answered_at = 0.0

    def begin(self) -> None:
        """Forget what was seen of an earlier JVM."""
        self._asking = None
        self._asked_at = self._answered_at = self._monotonic()

    def verdict(self, started: StartedSession) -> str | None:
        """Why the JVM must be replaced, None while it serves; call it a few times a second."""
        if not started.alive:
            return f"the JVM ended with {started.jvm.process.returncode}"
        now = self._monotonic()
        if self._asking is not None and self._asking.done():
            if self._asking.exception() is None:
                self._answered_at = now
                if self._asking.result():
                    return "the context has stopped by itself"
            self._asking = None
        if now - self._answered_at > self._patience_s + INTERVAL_S:
            return f"the JVM has not answered for {self._patience_s:g} s"
        if self._asking is None and now - self._asked_at >= INTERVAL_S:
            self._asked_at = now
            self._asking = self._thread.submit(_is_stopped, started)
        return None

    def end(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _is_stopped(started: StartedSession) -> bool:
    return bool(started.session.sparkContext._jsc.sc().isStopped())
