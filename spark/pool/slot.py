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
        self._confs: Any = None
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
            self._confs = self._session._jsparkSession.conf().getAll()
        session: Any = self._session
        started.gateway.jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)
        return self._session

    def clean(self, group: str, *, timeout_s: float) -> None:
        """Make the slot as if no job had been here. In the slot's thread.

        Args:
            group: the job group of the lease, already cancelled; jobs of it that still run are waited for.
        """
        self._assert_own_thread()
        session, started = self._session, self._started
        if session is None or started is None:
            return
        self._session = None  # for the case that a call fails: what is half clean is not used again
        jvm = started.gateway.jvm
        context = session.sparkContext._jsc.sc()
        context.setLocalProperties(jvm.java.util.Properties())
        settled = _settle(context, group, timeout_s=timeout_s)
        java_session = session._jsparkSession
        java_session.sessionState().catalog().clearTempTables()
        if settled and java_session.conf().getAll().equals(self._confs) and _is_pristine(java_session):
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


def _is_pristine(java_session: Any) -> bool:
    """Whether nothing is registered or selected that a new session would not have."""
    with suppress(Py4JError):
        state = java_session.sessionState()
        catalog = state.catalogManager()
        return bool(
            state.catalog().listTemporaryFunctions().isEmpty()
            and catalog.tempVariableManager().isEmpty()
            and catalog.currentCatalog().name() == "spark_catalog"
            and list(catalog.currentNamespace()) == ["default"]
            and _runtime_data_sources(state.dataSourceManager()).isEmpty()
        )
    return False


def _runtime_data_sources(manager: Any) -> Any:
    """Sources registered by somebody; Spark can register and look up by name, but not list or drop them."""
    field = manager.getClass().getDeclaredField("runtimeDataSourceBuilders")
    field.setAccessible(True)
    return field.get(manager)
