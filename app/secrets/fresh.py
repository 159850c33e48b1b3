"""Values that cost a process or a request to read, kept for some seconds, so that a crowd reads them once.

Rules:
- whoever waited for a reading takes what it brought, also its fault: a source that hangs is waited for once;
- a value that was refused by whom it was shown to is forgotten at once.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

KEPT_MAX: Final = 1_000


@dataclass(slots=True)
class _Kept:
    guard: threading.Lock = field(default_factory=threading.Lock)
    value: str | None = field(default=None, repr=False)
    fault: str | None = None
    read_s: float | None = None


class Fresh:
    """The kept values of one process. May be used by several threads."""

    def __init__(self, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._guard = threading.Lock()
        self._kept: OrderedDict[tuple[str, ...], _Kept] = OrderedDict()

    def get(self, key: tuple[str, ...], read: Callable[[], str], *, fresh_s: float) -> str:
        """A value that is not older than so many seconds.

        Raises: ValueError: it cannot be had.
        """
        asked_s = self._clock_s()
        kept = self._of(key)
        with kept.guard:
            is_of_now = kept.read_s is not None and kept.read_s >= asked_s
            is_fresh = kept.value is not None and kept.read_s is not None and asked_s - kept.read_s < fresh_s
            if not (is_of_now or is_fresh):
                self._read(kept, read)
            if kept.value is None:
                raise ValueError(kept.fault)
            return kept.value

    def fault(self, key: tuple[str, ...]) -> str | None:
        """Why the last reading failed; None: it did not, or there was none."""
        with self._guard:
            kept = self._kept.get(key)
        return None if kept is None else kept.fault

    def forget(self, key: tuple[str, ...]) -> None:
        """Read it anew the next time."""
        with self._guard:
            self._kept.pop(key, None)

    def _of(self, key: tuple[str, ...]) -> _Kept:
        with self._guard:
            kept = self._kept.setdefault(key, _Kept())
            self._kept.move_to_end(key)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
            return kept

    def _read(self, kept: _Kept, read: Callable[[], str]) -> None:
        kept.value = kept.fault = None
        try:
            kept.value = read()
        except OSError as error:
            kept.fault = error.strerror or str(error)
        except ValueError as error:
            kept.fault = str(error)
        finally:
            kept.read_s = self._clock_s()
