"""A process that has every module loaded and does nothing but fork: API processes begin at once.

It is forked from the service before that has any thread, and ends when the service does.
"""

import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import structlog

FDS_MAX: Final = 32
ANSWER_BYTES_MAX: Final = 32
ANSWER_S: Final = 60.0
LAST_S: Final = 5.0
LAST_STEP_S: Final = 0.02
CLOSE_S: Final = LAST_S + 2.0
"""It gives its processes LAST_S before it kills them; a nursery that is stopped gets no more than this."""
KILLED_S: Final = 2.0
FORK: Final = b"fork"
logger = structlog.get_logger("lethe.server")
Life = Callable[[int, int, int, Sequence[int]], int]
"""What an API process does: with its input, output, the shared buckets and what it listens on; its code."""


class Newborn:
    """A process that the nursery has forked; whoever has died is never taken for another."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)
        self._guard = threading.Lock()

    def kill(self) -> None:
        """SIGKILL, where it still lives."""
        with self._guard, contextlib.suppress(OSError):  # let go of: its handle may be another's by now
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def close(self) -> None:
        """Let go of it."""
        with self._guard:
            os.close(self._handle)
            self._handle = -1

    def has_ended(self, timeout_s: float) -> bool:
        """Wait for its end; whether it has come."""
        return bool(select.select([self._handle], [], [], timeout_s)[0])


class Nursery:
    """The nursery, as the service has it; any thread.

    Args:
        life: of a process that is forked.
    """

    def __init__(self, life: Life) -> None:
        assert threading.active_count() == 1, "a fork keeps no thread but this one"
        self._guard = threading.Lock()
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pid = os.fork()
        if self.pid == 0:
            self._socket.close()
            _tend(other, life)
        other.close()
        self._socket.settimeout(ANSWER_S)

    def fork(self, fds: Sequence[int]) -> Newborn:
        """Fork a process that gets these descriptors: input, output, buckets, and what it listens on.

        Raises: OSError: the nursery is gone, or no process can be made.
        """
        with self._guard:
            socket.send_fds(self._socket, [FORK], list(fds))
            answer = self._socket.recv(ANSWER_BYTES_MAX)
            if not answer or int(answer) <= 0:
                raise OSError("the process that forks them has ended, or has no room")
            return Newborn(int(answer))

    def close(self) -> None:
        """Let it end; where it does not in time it is killed, and its processes end with their input."""
        self._socket.close()
        with contextlib.suppress(ProcessLookupError):
            process = Newborn(self.pid)
            if not process.has_ended(CLOSE_S):
                logger.warning("the process that forks API processes did not end in time, and is killed")
                process.kill()
                process.has_ended(KILLED_S)
            process.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)


def call_it(name: str) -> None:
    """The name of this process in `ps -e`, of fifteen letters at most."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)


def _tend(orders: socket.socket, life: Life) -> NoReturn:
    """Fork on order, until nobody orders any more."""
    os.setsid()
    call_it("lethe-nursery")
    # The service decides when all end; who is sent a signal beside it goes on.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    born: set[int] = set()
    while True:
        try:
            order, fds, _flags, _address = socket.recv_fds(orders, len(FORK), FDS_MAX)
        except OSError:
            order = b""
        if order != FORK:
            _end_all(born)
        _bury(born)  # before the fork: whoever has died since the last one is known to the service
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid > 0:
            born.add(pid)
        if pid == 0:
            orders.close()
            code = 1
            try:
                code = life(fds[0], fds[1], fds[2], fds[3:])
            finally:
                os._exit(code)
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(OSError):
            orders.send(str(pid).encode())


def _bury(born: set[int]) -> None:
    """Take in whoever has died, and strike them off."""
    with contextlib.suppress(ChildProcessError):
        while pid := os.waitpid(-1, os.WNOHANG)[0]:
            born.discard(pid)


def _end_all(born: set[int]) -> NoReturn:
    """The service has ended, and so do all: who was stopped would keep its port."""
    until = time.monotonic() + LAST_S
    while born and time.monotonic() < until:
        _bury(born)
        time.sleep(LAST_STEP_S)
    assert all(pid > 0 for pid in born), "a process, never a group of them"
    for pid in born:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    os._exit(0)
