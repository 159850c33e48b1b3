"""Requests that wait for a round in work: they hold neither a thread nor a connection meanwhile."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool

from app.clock import Clock
from app.protection.control import Quiet
from app.protection.errors import ServiceStopping, TooManyWaiters

PAUSE_FIRST_S = 0.001
PAUSE_MAX_S = 0.02
PAUSE_GROWTH = 1.5


class WaitingRoom:
    """How many requests wait; one more than `waiters_max` is sent away before it has had any effect.

    Only the event loop's thread touches it.
    """

    def __init__(self, waiters_max: int) -> None:
        self._left = waiters_max

    @contextmanager
    def seat(self) -> Iterator[None]:
        """Wait within this block.

        Raises: TooManyWaiters.
        """
        if self._left <= 0:
            raise TooManyWaiters
        self._left -= 1
        try:
            yield
        finally:
            self._left += 1


@dataclass(frozen=True, slots=True)
class Silence:
    """How a wait ended."""

    is_proved: bool
    was_busy: bool
    latency_ms: float


async def wait_quiet(
    quiet: Quiet, *, timeout_s: float, clock: Clock, is_stopping: Callable[[], bool]
) -> Silence:
    """Try until all files are quiet, once at least, and until the timeout at most.

    Raises: ServiceStopping; ServiceError: the control file cannot be used.
    """
    begun_s = clock.boottime_s()
    pause_s = PAUSE_FIRST_S
    while True:
        is_proved = await run_in_threadpool(quiet.step)
        passed_s = clock.boottime_s() - begun_s
        if is_proved or passed_s >= timeout_s:
            return Silence(is_proved, quiet.was_busy, round(passed_s * 1000, 3))
        if is_stopping():
            raise ServiceStopping
        await asyncio.sleep(min(pause_s, timeout_s - passed_s))
        pause_s = min(pause_s * PAUSE_GROWTH, PAUSE_MAX_S)
