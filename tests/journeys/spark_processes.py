"""The processes below a service that runs Spark: the JVM, and the Python workers under it."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from random import Random

DAEMON = "pyspark.daemon"


def children_of(pid: int) -> list[int]:
    """Direct children."""
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(child) for child in tasks.read_text().split()]
    return found


def descendants_of(pid: int) -> list[int]:
    """Children and theirs."""
    found = children_of(pid)
    for child in list(found):
        found += descendants_of(child)
    return found


def command_of(pid: int) -> str:
    """Its command line; empty where it is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def jvm_of(service: int) -> int | None:
    """The JVM of a service; None: it has none now."""
    for pid in descendants_of(service):
        if "org.apache.spark" in command_of(pid) and "java" in command_of(pid).split(" ")[0]:
            return pid
    return None


def workers_of(service: int) -> list[int]:
    """The Python workers, without the daemon that makes them."""
    daemons = [pid for pid in descendants_of(service) if DAEMON in command_of(pid)]
    return [pid for pid in daemons if any(pid in children_of(parent) for parent in daemons)]


def kill_worker(service: int, rng: Random) -> bool:
    """kill -9 of one of them; False: there is none."""
    workers = workers_of(service)
    if workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)
    return bool(workers)


def kill_jvm(service: int) -> bool:
    """kill -9 of the JVM; False: there is none."""
    jvm = jvm_of(service)
    if jvm is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(jvm, signal.SIGKILL)
    return jvm is not None


def ended(pids: list[int]) -> bool:
    """Whether all of them are gone."""
    return not any(Path(f"/proc/{pid}").exists() and "Z" not in _state(pid) for pid in pids)


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


def send_all(pids: list[int], number: int) -> None:
    """Send a signal to those that are there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
