"""No kind of line fills the log: so many of one a second, then a line that says how many were left out."""

import logging
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import structlog

LINES_PER_S_MAX: Final = 200
KINDS_MAX: Final = 1_000
WINDOW_S: Final = 1.0


@dataclass(slots=True)
class _Window:
    began_at: float
    lines: int = 0
    left_out: int = 0


class LogBounds:
    """Counts the lines of each kind; safe in threads.

    Args:
        say: writes the summary of a kind: its name, and how many lines were left out.
    """

    def __init__(
        self,
        *,
        say: Callable[[str, int], None],
        lines_per_s: int = LINES_PER_S_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say = say
        self._lines_per_s = lines_per_s
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        self._lock = Lock()

    def passes(self, kind: str) -> bool:
        """Whether one more line of the kind may be written."""
        now = self._clock()
        with self._lock:
            window = self._windows.get(kind)
            over = window is not None and now - window.began_at >= WINDOW_S
            left_out = window.left_out if window is not None and over else 0
            if window is None or over:
                if len(self._windows) >= KINDS_MAX:
                    self._windows = {name: each for name, each in self._windows.items() if each.left_out}
                window = self._windows[kind] = _Window(now)
            window.lines += 1
            is_fine = window.lines <= self._lines_per_s
            window.left_out += not is_fine
        if left_out:
            self._say(kind, left_out)
        return is_fine

    def sum_up(self) -> None:
        """Say what was left out of kinds that have become silent; to be called about once a second."""
        now = self._clock()
        with self._lock:
            over = {
                kind: window
                for kind, window in self._windows.items()
                if window.left_out and now - window.began_at >= WINDOW_S
            }
            for kind in over:
                del self._windows[kind]
        for kind, window in over.items():
            self._say(kind, window.left_out)

    def processor(
        self, _logger: Any, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """For structlog.

        Raises: structlog.DropEvent.
        """
        if not self.passes(f"{method}: {event.get('event')}"):
            raise structlog.DropEvent
        return event

    def filter(self, record: logging.LogRecord) -> bool:
        """For a handler of the standard library; the kind is the text before its arguments are put in."""
        return self.passes(f"{record.name}: {str(record.msg)[:200]}")
