"""The only place that builds a SparkSession, and that clears up after one, alive or dead.

Rules:
- there is at most one JVM of ours in the process; `start_session` refuses a second;
- `start_session` ends within its timeout, whatever the JVM does, and leaves no process when it fails;
- after `discard` nothing of the session is left: no process, thread, descriptor, folder, or state in pyspark.

pyspark keeps its context in private class variables and has no way to give up a dead one; the names used here
are those of 4.3, to which the dependency is pinned, and the kill tests tell when they change.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, suppress
from typing import Any, Final

from py4j.clientserver import SHUTDOWN_FINALIZER_WORKER, FinalizerWorker  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession, SQLContext

from spark.pool.cluster.kubernetes import check_kubernetes
from spark.pool.cluster.packages import write_package
from spark.pool.cluster.secret_file import write_secret
from spark.pool.errors import SparkStartFailed
from spark.pool.jvm import Jvm, end, find_java, last_words, launch, named_in_environment
from spark.pool.master import await_master
from spark.pool.options import LOOPBACK, SparkOptions, spark_conf
from spark.pool.outcome import telling_line, text_of
from spark.pool.scratch import make_scratch
from spark.pool.started import StartedSession, release_thread

POLL_S: Final = 0.1
AWAY_PATIENCE_S: Final = 20.0
UNBLOCK_TIMEOUT_S: Final = 10.0

_FAIR_POOLS: Final = """<?xml version="1.0"?>
<allocations>
  <pool name="interactive">
    <schedulingMode>FAIR</schedulingMode><weight>2</weight><minShare>1</minShare>
  </pool>
  <pool name="bulk"><schedulingMode>FAIR</schedulingMode><weight>1</weight><minShare>0</minShare></pool>
</allocations>
"""

_starting = threading.Lock()
_logger: Final = logging.getLogger(__name__)


def start_session(
    options: SparkOptions, *, should_stop: Callable[[], bool] = lambda: False
) -> StartedSession:
    """Start a JVM and a session on it.

    Args:
        should_stop: asked while the start lasts; true ends it with the reason STOPPED.
    Raises: SparkStartFailed: with the reason; no process is left.
    """
    if not _starting.acquire(blocking=False):
        raise SparkStartFailed("FAILED", "a session is being started in this process")
    try:
        if SparkContext._gateway is not None:
            raise SparkStartFailed("FAILED", "there is a session in this process already")
        return _start(options, should_stop)
    except OSError as error:  # a folder that cannot be written, no more processes
        raise SparkStartFailed("FAILED", f"{type(error).__name__}: {error}") from error
    finally:
        _starting.release()


def discard(started: StartedSession, *, stop_timeout_s: float = 10.0) -> None:
    """End a session and its JVM, whether it lives, hangs or is dead; afterwards a new one may be started.

    Args:
        stop_timeout_s: how long a living context may take for a clean stop; 0: kill at once.
    """
    deadline = time.monotonic() + stop_timeout_s
    context = started.session.sparkContext
    with ThreadPoolExecutor(1, thread_name_prefix="lethe-spark-stop") as helper:
        if stop_timeout_s > 0 and started.alive:
            wait([helper.submit(_stop_context, context, started.gateway)], timeout=stop_timeout_s)
        end(started.jvm.process, patience_s=max(0.0, deadline - time.monotonic()))
    _forget(started.gateway)
    sys.path[:] = [entry for entry in sys.path if not entry.startswith(str(started.scratch.path))]
    started.scratch.remove()


def _start(options: SparkOptions, should_stop: Callable[[], bool]) -> StartedSession:
    began = time.monotonic()
    deadline = began + options.start_timeout_s
    find_java(options.java_home)
    check_kubernetes(options)
    patience_s = min(AWAY_PATIENCE_S, options.start_timeout_s)
    await_master(options.master_url, patience_s=patience_s, should_stop=should_stop)
    scratch = make_scratch(options.local_dir)
    log_file = options.log_file or scratch.parent / "spark.log"
    with ExitStack() as undo:
        undo.callback(scratch.remove)
        (scratch.path / "fair-pools.xml").write_text(_FAIR_POOLS)
        if options.event_log_dir is not None:
            options.event_log_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        packages = () if options.is_local else (write_package(scratch.path), *options.packages)
        jvm = launch(
            spark_conf(options, directory=scratch.path, sockets=scratch.sockets, packages=packages),
            environment=_environment(options),
            directory=scratch.path,
            log_file=log_file,
            deadline=deadline,
            should_stop=should_stop,
            properties=write_secret(options, scratch.path),
        )
        undo.pop_all()
    helper = ThreadPoolExecutor(1, thread_name_prefix="lethe-spark-start")
    building = helper.submit(_build, jvm, options)
    try:
        session, gateway = _await(building, jvm, deadline, should_stop, log_file=str(log_file))
    except SparkStartFailed as failed:
        end(jvm.process)
        wait([building], timeout=UNBLOCK_TIMEOUT_S)
        if SparkContext._gateway is not None:
            _forget(SparkContext._gateway)
        scratch.remove()
        detail = failed.detail if failed.reason != "EXITED" else f"{failed.detail}: {last_words(log_file)}"
        raise SparkStartFailed(failed.reason, detail) from None
    finally:
        helper.shutdown(wait=False)
    took_s = time.monotonic() - began
    return StartedSession(session, jvm, gateway, scratch, took_s, _has_mapped(jvm, options), log_file)


def _environment(options: SparkOptions) -> dict[str, str]:
    variables = {"PYSPARK_PYTHON": options.python, "PYSPARK_DRIVER_PYTHON": options.python}
    if options.is_local:
        variables["SPARK_LOCAL_IP"] = LOOPBACK
    if options.java_home is not None:
        variables["JAVA_HOME"] = str(options.java_home)
    return variables


def _build(jvm: Jvm, options: SparkOptions) -> tuple[SparkSession, Any]:
    gateway = _connect(jvm)
    SparkContext._gateway = gateway
    SparkContext._jvm = gateway.jvm
    try:
        session = SparkSession.builder.getOrCreate()
        session.sparkContext.pythonExec = options.python
        _silence(session.sparkContext)
    finally:
        release_thread(gateway)
    return session, gateway


def _silence(context: SparkContext) -> None:
    """Keep pyspark from writing to standard error what its exceptions say already."""
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)
    server: Any = context._accumulatorServer
    server.handle_error = _note_broken_accumulators


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Drop the stacks that py4j writes to the root logger when the JVM dies; its exception says the same."""
    return not record.pathname.endswith("py4j/java_gateway.py")


def _note_broken_accumulators(*_request_and_address: Any) -> None:
    _logger.debug("the JVM has gone away from the accumulators' server", exc_info=sys.exc_info())


def _connect(jvm: Jvm) -> Any:
    """Connect py4j to a JVM that runs already; pyspark takes port and secret from the environment only."""
    with named_in_environment(jvm):
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    gateway.proc = jvm.process
    return gateway


def _await(
    building: "Future[tuple[SparkSession, Any]]",
    jvm: Jvm,
    deadline: float,
    should_stop: Callable[[], bool],
    *,
    log_file: str,
) -> tuple[SparkSession, Any]:
    while not wait([building], timeout=POLL_S).done:
        if should_stop():
            raise SparkStartFailed("STOPPED", "the start was given up")
        if time.monotonic() >= deadline:
            raise SparkStartFailed("TIMEOUT", f"the context is not up in time; see {log_file}")
    error = building.exception()
    if error is None:
        return building.result()
    raise _failed(error, jvm)


def _failed(error: BaseException, jvm: Jvm) -> SparkStartFailed:
    if not jvm.alive:
        return SparkStartFailed("EXITED", "the JVM ended before the context was up")
    text, line = text_of(error), telling_line(error)
    if "Could not parse Master URL" in text:
        return SparkStartFailed("BAD_MASTER", line)
    # A context gives up a master that does not answer after a minute, and then exists, stopped.
    if "masters are unresponsive" in text or "stopped SparkContext" in text:
        return SparkStartFailed("MASTER_AWAY", f"the cluster's master does not answer ({line})")
    return SparkStartFailed("FAILED", line)


def _has_mapped(jvm: Jvm, options: SparkOptions) -> bool:
    if options.cds_archive is None:
        return False
    with suppress(OSError), open(f"/proc/{jvm.process.pid}/maps", encoding="utf-8") as maps:
        return any(str(options.cds_archive) in line for line in maps)
    return False


def _stop_context(context: SparkContext, gateway: Any) -> None:
    # Not session.stop(): it warns, and asks a dead JVM for more, when the JVM goes at this moment.
    with suppress(Py4JError, OSError):
        context._jsc.stop()
        release_thread(gateway)


def _forget(gateway: Any) -> None:
    """Make pyspark forget a context whose process has ended."""
    with SparkContext._lock:
        context = SparkContext._active_spark_context
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    if context is not None:
        context._jsc = None
        server = getattr(context, "_accumulatorServer", None)
        if server is not None:
            server.shutdown()
    gateway.shutdown_callback_server()
    _close_connections(gateway._gateway_client)


def _close_connections(client: Any) -> None:
    client.finalizer_deque.appendleft(SHUTDOWN_FINALIZER_WORKER)
    for thread in threading.enumerate():
        if isinstance(thread, FinalizerWorker) and thread.deque is client.finalizer_deque:
            thread.join(timeout=UNBLOCK_TIMEOUT_S)
    with suppress(IndexError):
        while True:
            client.deque.pop().close()
