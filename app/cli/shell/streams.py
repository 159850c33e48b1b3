"""Stdout and stderr as the command writes them: what becomes of words that nobody takes.

Rules:
- what is said beside a result never ends a command;
- a result whose reader has gone is dropped, and the exit code says what became of the command; a stream of
  results without an end stops there;
- a result that cannot be had again, such as a new secret, is an error where its reader has gone;
- a result that cannot be written otherwise, as on a full disk, is an error.
"""

import os
import sys
from typing import Any


class OutputLost(Exception):
    """A result could not be written; the message says why. Nothing more is written there.

    Args:
        advice: what to do, where the result cannot be had again.
    """

    def __init__(self, cause: str, advice: str = "") -> None:
        super().__init__(cause)
        self.advice = advice


class Words:
    """One of the streams, as a file to print to.

    Args:
        stream: what is written to.
        beside: no result: it may be lost.
        endless: a reader that has gone ends it, by BrokenPipeError.
        when_lost: what to do where nobody got it; with it a reader that has gone is an error.
    """

    def __init__(
        self, stream: Any, *, beside: bool = False, endless: bool = False, when_lost: str = ""
    ) -> None:
        self._stream = stream
        self._beside = beside
        self._endless = endless
        self._when_lost = when_lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            self._stream.write(self._known(text))
        except OSError as error:
            self._lost(error)
        return len(text)

    def write_bytes(self, content: bytes) -> None:
        """Write bytes as they are, and flush."""
        try:
            self._stream.buffer.write(content)
            self._stream.buffer.flush()
        except OSError as error:
            self._lost(error)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._lost(error)

    def _known(self, text: str) -> str:
        """The text with escapes for what the stream's encoding has not."""
        encoding = self._stream.encoding or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)

    def _lost(self, error: OSError) -> None:
        close_off(self._stream)
        if self._beside:
            return
        if self._when_lost or not isinstance(error, BrokenPipeError):
            raise OutputLost(error.strerror or str(error), self._when_lost) from error
        if self._endless:
            raise error


def close_off(stream: Any) -> None:
    """Let all that is still written to a stream, also at the end of the process, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)


def open_missing() -> None:
    """Stand in for streams that were closed before the command began, as by `>&-`."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 -- for the life of the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 -- for the life of the process
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 -- for the life of the process
