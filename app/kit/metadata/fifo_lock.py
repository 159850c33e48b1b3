"""A lock whose waiters are served in the order of their arrival."""

import threading
from collections import deque
from types import TracebackType


class FifoLock:
    """First come, first served; SQLite's own busy handler is not fair and lets writers starve."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._waiters: deque[threading.Event] = deque()

    def acquire(self, timeout_s: float) -> bool:
        """Wait for the lock at most `timeout_s` seconds; tell whether it was had."""
        with self._guard:
            if not self._held and not self._waiters:
                self._held = True
                return True
            turn = threading.Event()
            self._waiters.append(turn)
        if turn.wait(timeout_s):
            return True
        with self._guard:
            if turn.is_set():  # the turn came between the timeout and this line
                return True
            self._waiters.remove(turn)
            return False

    def release(self) -> None:
        """Hand the lock to the longest waiter."""
        with self._guard:
            assert self._held, "released a lock that nobody holds"
            if self._waiters:
                self._waiters.popleft().set()
            else:
                self._held = False

    def __enter__(self) -> "FifoLock":
        self.acquire(threading.TIMEOUT_MAX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
