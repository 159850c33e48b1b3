"""Whose turn it is among webhooks that something is due for: those who are slow keep nobody else waiting.

Rules:
- a webhook has one sender at a time, and all have SENDERS_MAX;
- who was served longest ago comes first, and has no more than BURST_MAX deliveries or BURST_MAX_S, and one
  attempt more at most;
- one sender is kept for webhooks that neither failed last nor were slow.
"""

import threading
import time
from collections.abc import Sequence
from typing import Final

SENDERS_MAX: Final = 4
BURST_MAX: Final = 200
"""Of one webhook before the others have their turn."""
BURST_MAX_S: Final = 10.0
SLOW_S: Final = 2.0
"""An attempt that takes longer is slow."""


class Burst:
    """How much of one turn is over."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._count = 0

    def goes_on(self) -> bool:
        """Whether one more may be sent in it."""
        self._count += 1
        return self._count <= BURST_MAX and time.monotonic() - self._began_s < BURST_MAX_S

    @property
    def is_slow(self) -> bool:
        """Whether its deliveries took long, one by the other."""
        return (time.monotonic() - self._began_s) / max(self._count, 1) >= SLOW_S


class Turns:
    """Who is being served, and who was when."""

    def __init__(self) -> None:
        self._guard = threading.Condition()
        self._busy: dict[str, bool] = {}
        self._served_s: dict[str, float] = {}
        self._slow: set[str] = set()

    @property
    def busy(self) -> frozenset[str]:
        """Webhooks that have a sender now."""
        with self._guard:
            return frozenset(self._busy)

    def give(self, due: Sequence[tuple[str, int]]) -> list[str]:
        """Who has a turn now, of webhooks that something is due for, each with its failures in a row."""
        given: list[str] = []
        with self._guard:
            for webhook_id, failures in sorted(due, key=lambda each: self._served_s.get(each[0], 0.0)):
                is_sick = failures > 0 or webhook_id in self._slow
                is_full = is_sick and sum(self._busy.values()) >= SENDERS_MAX - 1
                if webhook_id in self._busy or is_full or len(self._busy) >= SENDERS_MAX:
                    continue
                self._busy[webhook_id] = is_sick
                given.append(webhook_id)
        return given

    def end(self, webhook_id: str, *, is_slow: bool) -> None:
        """A turn is over."""
        with self._guard:
            self._busy.pop(webhook_id, None)
            self._served_s[webhook_id] = time.monotonic()
            if is_slow:
                self._slow.add(webhook_id)
            else:
                self._slow.discard(webhook_id)
            self._guard.notify_all()

    def wait_for_all(self, timeout_s: float) -> None:
        """Until nobody has a sender, for so long at most."""
        with self._guard:
            self._guard.wait_for(lambda: not self._busy, timeout_s)
