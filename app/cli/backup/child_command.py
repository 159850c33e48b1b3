"""Another program's command as a part of ours: signals go through to it, and its exit code comes back.

Invariants:
- from before the child exists until it has ended no signal that is passed on ends this process;
- what a terminal sends to the whole process group is not passed on once more.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

PASSED_ON: Final = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
FROM_TERMINAL: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGHUP})
SI_KERNEL: Final = 0x80
LOOK_AGAIN_S: Final = 0.5
KILLED_BASE: Final = 128


class ChildCommand:
    """One run of a command.

    Args:
        stdout: where its standard output goes; None: where ours goes.
    """

    def __init__(self, arguments: Sequence[str], *, stdout: Any = None) -> None:
        self._arguments = list(arguments)
        self._stdout = stdout
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()

    def terminate(self) -> None:
        """Ask it to end, if it runs; any thread."""
        with self._guard:
            if self._process is not None and self._process.returncode is None:
                self._process.terminate()

    def run(self, *, started: Callable[[], None]) -> int:
        """Run it to its end; returns its exit code, 128 and the signal's number if one ended it.

        Args:
            started: called in this thread once it runs; threads that it starts get no signals.
        Raises: OSError: it could not be started.
        """
        early: list[int] = []

        def note(number: int, _frame: FrameType | None) -> None:
            early.append(number)

        with _handled_by(note):
            with self._guard:
                self._process = subprocess.Popen(self._arguments, stdout=self._stdout)  # noqa: S603 -- the user's
            # Handlers of Python's are no child's: exec has put the defaults back, as it should.
            former = signal.pthread_sigmask(signal.SIG_BLOCK, {*PASSED_ON, signal.SIGCHLD})
            try:
                for number in early:
                    self._pass_on(number)
                started()
                return self._wait()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, former)

    def _wait(self) -> int:
        assert self._process is not None
        while True:
            with self._guard:
                code = self._process.poll()
            if code is not None:
                return KILLED_BASE - code if code < 0 else code
            came = signal.sigtimedwait({*PASSED_ON, signal.SIGCHLD}, LOOK_AGAIN_S)
            if came is None or came.si_signo == signal.SIGCHLD:
                continue
            if came.si_code != SI_KERNEL or came.si_signo not in FROM_TERMINAL:
                self._pass_on(came.si_signo)

    def _pass_on(self, number: int) -> None:
        assert self._process is not None
        with self._guard:
            if self._process.poll() is None:
                os.kill(self._process.pid, number)


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    former = {number: signal.signal(number, handler) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, before in former.items():
            signal.signal(number, before)
