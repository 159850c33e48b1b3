"""A process that was forked from a forge (tests/forge.py), as whoever asked for it has it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from typing import IO

START_MAX_S = 60.0
KILLED = -int(signal.SIGKILL)


class Forked:
    """What `subprocess.Popen` is to a process that was forked from the forge."""

    stdin: IO[bytes] | None = None
    stdout: IO[bytes] | None = None

    def __init__(self, connection: socket.socket, args: list[str]) -> None:
        self.args = args
        self.returncode: int | None = None
        self._connection = connection
        self._guard = threading.Lock()
        self.pid = self._number(START_MAX_S)

    def _number(self, timeout_s: float) -> int:
        self._connection.settimeout(timeout_s)
        data = self._connection.recv(64)
        # The forge is gone: its children went with it.
        return int(data) if data else KILLED

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        with self._guard:
            if self.returncode is None:
                self._connection.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    self._end(int(self._connection.recv(64) or KILLED))
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; the exit code.

        Raises: subprocess.TimeoutExpired: it runs on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, float(timeout or 0))
            time.sleep(0.005)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes, None]:
        """Close its standard input, read its standard output to the end, and wait for its own."""
        said = b""
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()
        if self.stdout is not None and not self.stdout.closed:
            said = self.stdout.read()
            self.stdout.close()
        self.wait(timeout)
        return said, None

    def _end(self, code: int) -> None:
        self.returncode = code
        self._connection.close()

    def send_signal(self, number: int) -> None:
        """Send a signal, where it has not ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)
