"""When the next unit of a sweep may begin, and what becomes of one that failed.

Rules:
- a job that must stop begins no unit, and tries none again;
- only what may pass is tried again, at most `purge_unit_retries_max` times, after a pause that grows;
- the bounds that hold a job are shown as soon as they hold it.
"""

import random
from collections.abc import Callable, Sequence
from typing import Final

from app.jobs.errors import JobStopped
from app.jobs.models import WaitingOn
from app.jobs.running.context import JobContext
from spark.targets.errors import TargetError

RETRY_FIRST_S: Final = 0.05
RETRY_MAX_S: Final = 2.0
SHOWN_AFTER_TRIES: Final = 1
HELD_UP_MAX_CHARS: Final = 200


def what_holds(error: TargetError) -> Sequence[WaitingOn]:
    """What clients see of a unit that is tried again and again."""
    return [WaitingOn(kind=error.code, ref=error.detail[:HELD_UP_MAX_CHARS])]


class Turns:
    """The turns of one attempt."""

    def __init__(self, context: JobContext, *, keep: Callable[[], None]) -> None:
        self._context = context
        self._keep = keep
        self._is_held_up = False

    def wait(self, tries: int, *, rest_s: Callable[[], float]) -> bool:
        """Wait for the throttle, the rest between two units, and the pause after a failure.

        Returns: False: the job must stop.
        """
        clock = self._context.clock
        pause_s = min(RETRY_MAX_S, RETRY_FIRST_S * 2**tries) * (0.5 + random.random()) if tries else 0.0  # noqa: S311
        pause_until = clock.boottime_s() + pause_s
        self._context.show_bounds()
        while self._context.stop_cause is None:
            left_s = max(self._context.throttle.delay_s(), rest_s(), pause_until - clock.boottime_s())
            if left_s <= 0:
                return True
            self._keep()  # an engine draws its units in the thread that runs the sweep
            self._context.show_bounds()
            self._context.sleep(left_s)
        return False

    def retry_or_raise(
        self, error: TargetError, tries: int, holders: Callable[[TargetError], Sequence[WaitingOn]]
    ) -> None:
        """Let a unit be tried again that was tried `tries` times before.

        Raises: JobStopped; the error, where it will not pass or came too often.
        """
        cause = self._context.stop_cause
        if cause is not None:
            raise JobStopped(cause) from error
        if not error.transient or tries >= self._context.settings.purge_unit_retries_max:
            raise error
        if tries == SHOWN_AFTER_TRIES and not self._is_held_up:
            self._is_held_up = True
            self._context.show_waiting(holders(error))

    def goes_on(self) -> None:
        """A unit was done: nothing holds the job up any more."""
        if self._is_held_up:
            self._is_held_up = False
            self._context.show_waiting([])
