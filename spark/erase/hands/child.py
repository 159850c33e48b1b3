"""Hands in a process of their own: calls go to it, and answers come back, over two pipes.

What the child runs is a program of its own (`child_program`): whoever only sends calls loads no compiler.

Invariants:
- the child does one call at a time, never forks, and writes nothing to its pipe but answers;
- it ends when its standard input ends, in the middle of a call too: so it does when its parent dies. A round
  that ends anywhere is legal;
- whoever waits for an answer gets it, or HandsLost.
"""

import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, cast

from spark import extras
from spark.erase.calls.any_call import Call, Done
from spark.erase.hands.hands import Answer, Hands, HandsLost

LENGTH: Final = struct.Struct("<Q")
# A plan of a hundred million entries is about 3 GB: more is no answer of ours.
MESSAGE_BYTES_MAX: Final = 8 * 1024**3
CLOSE_PATIENCE_S: Final = 5.0
ROOT: Final = Path(__file__).parents[3]


class MessageForeign(ValueError):
    """The program on the disk is not the one that runs: it was upgraded under a running service."""


class ChildHands(Hands):
    """Hands that are a child process, started with the first call. One thread calls; any may kill."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        """Start nothing yet.

        Args:
            environment: of the child, instead of ours.
        """
        self._environment = None if environment is None else dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False
        self._starting = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The child's process id; None before its first call."""
        return None if self._process is None else self._process.pid

    def kill(self) -> None:
        """End the child at once, wherever it is; whoever waits for it gets HandsLost."""
        with self._starting:
            self._is_over = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """End the child. A call that is at work ends with it."""
        with self._starting:
            self._is_over = True
            process = self._process
        if process is None:
            return
        assert process.stdin is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(CLOSE_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _close_pipes(process)

    def _do(self, call: Call, kind: type[Answer]) -> Answer:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_message(process.stdin, call)
            answer = read_message(process.stdout)
        except MessageForeign as error:
            raise self._lost(process, str(error)) from error
        except (OSError, ValueError, EOFError) as error:
            raise self._lost(process) from error
        if answer is None:
            raise self._lost(process)
        assert isinstance(answer, kind), type(answer)
        return answer

    def _lost(self, process: subprocess.Popen[bytes], reason: str = "") -> HandsLost:
        """Say how the child ended. A pipe that broke is of no more use: what may be left of it is ended."""
        self._is_over = True
        process.kill()
        ended = process.wait()
        _close_pipes(process)
        return HandsLost(reason or f"process {process.pid} ended with {ended}")

    def _started(self) -> subprocess.Popen[bytes]:
        with self._starting:
            if self._is_over:
                raise HandsLost("these hands were killed or closed")
            if not extras.JE.is_installed:
                raise HandsLost(f"no compiler for its loops here: {extras.JE.command}")
            if self._process is None:
                self._process = self._start()
            return self._process

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the child; a machine without room for a process now may have it later."""
        try:
            return start_program(self._environment)
        except OSError as error:  # a start that does not answer in time too
            self._is_over = True
            raise HandsLost(f"the process that erases was not started: {error}") from error


def start_program(environment: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    """Start the program of a child, with pipes to and from it.

    Args:
        environment: None: ours.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "spark.erase.hands.child_program"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=None if environment is None else dict(environment),
        start_new_session=True,
        close_fds=True,
    )


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        # What could not be sent to a process that is gone is still in the buffer.
        with suppress(OSError):
            pipe.close()


def write_message(pipe: IO[bytes], value: Call | Done) -> None:
    """Send a value: the length of its pickle, and the pickle."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def read_message(pipe: IO[bytes]) -> Call | Done | None:
    """Receive a value; None where the other side has ended.

    Raises: MessageForeign.
    """
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    assert length <= MESSAGE_BYTES_MAX, length
    data = pipe.read(length)
    if len(data) < length:
        return None
    try:
        # The other side is our own process, over a pipe that nobody else has.
        return cast(Call | Done, pickle.loads(data))  # noqa: S301
    except (AttributeError, ImportError, TypeError, pickle.UnpicklingError) as error:
        raise MessageForeign("a child of another version answered: restart the service") from error
