"""What a Python worker of Spark should not do again for each task, and when it must not go on."""

import gc
import os
import select
import signal
import sys
from socket import socket
from threading import Thread

from pyspark import TaskContext

_seen = 0
_is_watched = False


def keep_modules() -> None:
    """In a worker: the collector of garbage need not look at what is loaded; elsewhere nothing.

    pyspark's daemon collects behind every task: 70 ms, once numba, pyarrow and SQLAlchemy are there.
    Called where a task has imported what it needs; what is alive then is never looked at again.
    """
    global _seen
    if TaskContext.get() is None or len(sys.modules) == _seen:
        return
    gc.collect()
    gc.freeze()
    _seen = len(sys.modules)


def end_with_connection() -> None:
    """In a worker: end as by kill -9 once the JVM has closed its connection; elsewhere nothing.

    Spark kills the worker of a cancelled task only if the task still stands two seconds later. A task that is
    interrupted while it writes the worker's input ends at once (4.3: "This has a race condition" in its
    PythonRunner), and its worker would go on alone until it next writes a result.
    Called where a task begins; one thread for each worker, however often it is used again.
    """
    global _is_watched
    connection = None if _is_watched else _connection()
    if connection is not None:
        _is_watched = True
        Thread(target=_end_with, args=(connection,), name="connection to the JVM", daemon=True).start()


def _connection() -> socket | None:
    """What pyspark's daemon has given to the function that serves this worker; it hands it to nobody."""
    frame = sys._getframe() if TaskContext.get() is not None else None
    while frame is not None:
        if frame.f_code.co_name == "worker" and isinstance(frame.f_locals.get("sock"), socket):
            found: socket = frame.f_locals["sock"]
            return found
        frame = frame.f_back
    return None


def _end_with(connection: socket) -> None:
    poller = select.poll()
    poller.register(connection, select.POLLRDHUP)
    while not poller.poll():
        continue
    os.kill(os.getpid(), signal.SIGKILL)
