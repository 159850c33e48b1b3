"""Whether the JVM below still serves: its process, and a call that must be answered.

Rules:
- a verdict never waits for the JVM;
- a process that has ended is told at once; one that is only slow (garbage collection) gets `patience_s`, of
  which nothing counts while nobody looked: a service that was stopped and goes on has not read an answer yet;
- a cluster that has taken every executor away gets `WITHOUT_EXECUTORS_S`: a master that was started anew
  knows nothing of us and never gives one. One that has given none yet is busy, and asking anew would cost our
  place in its queue. Kubernetes forgets nobody: Spark goes on asking for pods, machines may have to come
  first, and a JVM that is killed leaves its pods behind. There it is waited for without an end.
"""

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from spark.pool.cluster.kubernetes import PodTroubles
from spark.pool.snapshot import Alone, ExecutorView
from spark.pool.started import StartedSession

INTERVAL_S: Final = 1.0
WITHOUT_EXECUTORS_S: Final = 20.0
NEVER_ANY_S: Final = 600.0


EXECUTORS_EVERY_S: Final = 5.0
"""How often executors are looked at one by one: some calls for each."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the JVM has answered.

    Args:
        executors: None where tasks run in its own workers.
        listed: None where they were not looked at one by one.
    """

    is_stopped: bool
    executors: int | None
    listed: tuple[ExecutorView, ...] | None = None


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
        self._why_thread = ThreadPoolExecutor(1, thread_name_prefix="lethe-spark-why")
        self._asking: Future[_Seen] | None = None
        self._asked_at = 0.0
        self._answered_at = 0.0
        self._looked_at = 0.0
        self._alone_since = 0.0
        self._had_executors = False
        self._listed_at = -math.inf
        self._is_kubernetes = False
        self._why: str | None = None
        self._troubles: PodTroubles | None = None
        self._asking_why: Future[str | None] | None = None
        self._why_at = -math.inf
        self.executors: int | None = None
        self.listed: tuple[ExecutorView, ...] = ()

    def begin(self, *, is_kubernetes: bool = False) -> None:
        """Forget what was seen of an earlier JVM."""
        self._is_kubernetes, self._why, self._troubles = is_kubernetes, None, None
        self._asking_why, self._why_at = None, -math.inf
        self._asking = None
        self._asked_at = self._answered_at = self._looked_at = self._alone_since = self._monotonic()
        self._had_executors, self.executors, self.listed = False, None, ()
        self._listed_at = -math.inf

    def verdict(self, started: StartedSession) -> str | None:
        """Why the JVM must be replaced, None while it serves; call it a few times a second."""
        if not started.alive:
            return f"the JVM ended with {started.jvm.process.returncode}"
        now = self._monotonic()
        self._answered_at += max(0.0, now - self._looked_at - INTERVAL_S)
        self._looked_at = now
        if self._asking is not None and self._asking.done():
            if self._asking.exception() is None:
                self._note(self._asking.result(), now)
                if self._asking.result().is_stopped:
                    return "the context has stopped by itself"
            self._asking = None
        if now - self._answered_at > self._patience_s + INTERVAL_S:
            return f"the JVM has not answered for {self._patience_s:g} s"
        if self.alone is not None and self.alone.left_s == 0:
            return "the cluster gives no executor"
        if self._asking is None and now - self._asked_at >= INTERVAL_S:
            self._asked_at = now
            lists = now - self._listed_at >= EXECUTORS_EVERY_S
            self._listed_at = now if lists else self._listed_at
            self._asking = self._thread.submit(_look, started, lists=lists)
        if self._is_kubernetes and self.executors == 0:
            self._ask_why(started, now)
        return None

    def _ask_why(self, started: StartedSession, now: float) -> None:
        """By a thread of its own: an API server that hangs is no JVM that does."""
        if self._asking_why is not None and self._asking_why.done():
            self._why = None if self._asking_why.exception() else self._asking_why.result()
            self._asking_why = None
        if self._asking_why is None and now - self._why_at >= EXECUTORS_EVERY_S:
            self._why_at = now
            troubles = self._troubles = self._troubles or PodTroubles(
                started.log_file, log_begin=started.jvm.log_begin, monotonic=self._monotonic
            )
            self._asking_why = self._why_thread.submit(_look_why, troubles, started)

    @property
    def alone(self) -> Alone | None:
        """That the cluster has no executor for us; None: it has, or there is no cluster."""
        if self.executors != 0:
            return None
        if self._is_kubernetes:
            return Alone(None, self._why)
        patience_s = WITHOUT_EXECUTORS_S if self._had_executors else NEVER_ANY_S
        return Alone(max(0.0, self._alone_since + patience_s - self._monotonic()))

    def _note(self, seen: _Seen, now: float) -> None:
        self._answered_at = now
        self.executors = seen.executors
        self.listed = self.listed if seen.listed is None else seen.listed
        if seen.executors != 0:
            self._why = None
            self._alone_since = now
            self._had_executors = True

    def end(self) -> None:
        """Let the thread end."""
        for thread in (self._thread, self._why_thread):
            thread.shutdown(wait=False, cancel_futures=True)


def _look(started: StartedSession, *, lists: bool) -> _Seen:
    context = started.session.sparkContext._jsc.sc()
    if context.isStopped():
        return _Seen(is_stopped=True, executors=None)
    listed = None
    if lists:
        # Shown to people only: a store that does not answer is no verdict.
        with suppress(Py4JError):
            listed = list_executors(context)
    if context.isLocal():
        return _Seen(is_stopped=False, executors=None, listed=listed)
    executors = int(context.getExecutorMemoryStatus().size()) - 1  # without the driver
    return _Seen(is_stopped=False, executors=executors, listed=listed)


def _look_why(troubles: PodTroubles, started: StartedSession) -> str | None:
    return troubles.look(started.session.sparkContext._jsc.sc())


def list_executors(context: Any) -> tuple[ExecutorView, ...]:
    """Who runs tasks, as the status store of a context has it; a driver that runs none is left out.

    Args:
        context: Scala's, of the JVM.
    """
    found = context.statusStore().executorList(True).iterator()
    views = []
    while found.hasNext():
        each = found.next()
        if each.totalCores() > 0:
            views.append(
                ExecutorView(
                    id=str(each.id()),
                    address=str(each.hostPort()),
                    cores=int(each.totalCores()),
                    tasks=int(each.activeTasks()),
                    memory=int(each.maxMemory()),
                    memory_used=int(each.memoryUsed()),
                )
            )
    return tuple(views)
