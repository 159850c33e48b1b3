"""A session and the thread that it lives on.

Invariants:
- a session is used on its slot's thread only;
- a session whose cleanness cannot be established is replaced, never lent again.

py4j pins each thread of Python to one of the JVM, so local properties and job tags stay with the thread, and
confs, views and functions with the session. Both outlive a job unless somebody clears them.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from spark.pool.started import StartedSession, release_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

SETTLE_POLL_S: Final = 0.02


class Slot:
    """A place for one job at a time."""

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.jobs_run = 0
        self._started: StartedSession | None = None
        self._session: SparkSession | None = None
        self._java: _Java | None = None
        self._thread = self._new_thread()

    def submit(self, function: Callable[..., T], *args: Any, **named: Any) -> "Future[T]":
        """Run something in the slot's thread."""
        return self._thread.submit(function, *args, **named)

    def replace_thread(self) -> None:
        """Give up a thread that does not come back, and its session; it ends when what it runs does."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._thread = self._new_thread()
        self._session = None

    def end(self) -> None:
        """Let the thread end when what it runs has ended."""
        started = self._started
        if started is not None:
            with suppress(RuntimeError):
                self._thread.submit(release_thread, started.gateway)
        self._thread.shutdown(wait=False)

    def session_on(self, started: StartedSession) -> "SparkSession":
        """The slot's session, made anew when it is of another JVM. In the slot's thread."""
        self._assert_own_thread()
        if self._session is None or self._started is not started:
            self._started = started
            self._session = started.session.newSession()
            self._java = _Java(started, self._session)
        assert self._java is not None, "made with the session"
        self._java.activate()
        return self._session

    def clean(self, group: str, *, timeout_s: float) -> None:
        """Make the slot as if no job had been here. In the slot's thread.

        Args:
            group: the job group of the lease, already cancelled; jobs of it that still run are waited for.
        """
        self._assert_own_thread()
        session, java = self._session, self._java
        if session is None or java is None:
            return
        self._session = None  # for the case that a call fails: what is half clean is not used again
        java.forget_properties()
        settled = _settle(java.context, group, timeout_s=timeout_s)
        java.catalog.clearTempTables()
        if settled and java.is_pristine():
            self._session = session

    def _new_thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix=self._thread_name)

    @property
    def _thread_name(self) -> str:
        return f"lethe-spark-slot-{self.number}"

    def _assert_own_thread(self) -> None:
        name = threading.current_thread().name
        assert name.rpartition("_")[0] == self._thread_name, f"{name} uses slot {self.number}"


def _settle(context: Any, group: str, *, timeout_s: float) -> bool:
    """Wait until no job of the group runs."""
    tracker = context.statusTracker()
    deadline = time.monotonic() + timeout_s
    while True:
        active = set(tracker.getActiveJobIds())
        if not active or active.isdisjoint(tracker.getJobIdsForGroup(group)):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(SETTLE_POLL_S)


class _Java:
    """The Java side of a slot's session, looked up once: py4j asks the JVM for each part of each name."""

    def __init__(self, started: StartedSession, session: Any) -> None:
        jvm: Any = started.gateway.jvm
        self._class_of_sessions = jvm.org.apache.spark.sql.classic.SparkSession
        self._class_of_properties = jvm.java.util.Properties
        self._session: Any = session._jsparkSession
        self.context: Any = session.sparkContext._jsc.sc()
        state = self._session.sessionState()
        self.catalog: Any = state.catalog()
        self._catalogs = state.catalogManager()
        self._variables = self._catalogs.tempVariableManager()
        self._sources = state.dataSourceManager()
        # Spark can register sources and look them up by name, but not list or drop them.
        self._registered = self._sources.getClass().getDeclaredField("runtimeDataSourceBuilders")
        self._registered.setAccessible(True)
        self._confs = self._session.conf().getAll()

    def activate(self) -> None:
        """Make the session that of this thread."""
        self._class_of_sessions.setActiveSession(self._session)

    def forget_properties(self) -> None:
        """Local properties of this thread: groups, pools, descriptions."""
        self.context.setLocalProperties(self._class_of_properties())

    def is_pristine(self) -> bool:
        """Whether nothing is set, registered or selected that a new session would not have."""
        with suppress(Py4JError):
            return bool(
                self._session.conf().getAll().equals(self._confs)
                and self.catalog.listTemporaryFunctions().isEmpty()
                and self._variables.isEmpty()
                and self._catalogs.currentCatalog().name() == "spark_catalog"
                and list(self._catalogs.currentNamespace()) == ["default"]
                and self._registered.get(self._sources).isEmpty()
            )
        return False
