"""Whose turn it is to take the next connection, of several processes that listen at one address.

The kernel wakes all of them, and who is first takes it: of connections that come together, and stay, one
process would get most. So each tells how many it has, and whoever has more than another lets him.

Rules:
- whoever has more waits for the others, but PATIENCE_S at most while none of them takes or loses one:
  they may hang;
- of a process that has ended nobody waits for the connections that it had too few of.
"""

import mmap
import struct
import time
from collections.abc import Callable
from typing import Final

from app.kit.shared_rates import TABLE_BYTES, TURNS_BYTES

COUNT: Final = struct.Struct("<q")
NUMBER_MAX: Final = 64
"""As `api_processes` is at most."""
NOT_THERE: Final = -1
SLACK: Final = 2
"""Who has so many more than another lets him go first."""
PATIENCE_S: Final = 0.01
STEP_S: Final = 0.0005
FRESH_S: Final = 0.05
"""Whoever was not asked for so long is asked for another connection."""


class SharedTurns:
    """How many connections each process has open, in the memory that all of them share.

    Args:
        fd: of that memory, as of a SharedTable.
    """

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, TURNS_BYTES, offset=TABLE_BYTES)

    def tell(self, number: int, count: int) -> None:
        """Say how many a process has; NOT_THERE: it has ended."""
        assert 1 <= number <= NUMBER_MAX, number
        COUNT.pack_into(self._memory, number * COUNT.size, count + 1)

    def beside(self, number: int) -> list[int]:
        """How many each of the others has."""
        words = range(1, NUMBER_MAX + 1)
        found = (COUNT.unpack_from(self._memory, each * COUNT.size)[0] for each in words if each != number)
        return [count - 1 for count in found if count > 0]

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


class Turn:
    """One process's look at whose turn it is; of its event loop's thread.

    Args:
        turns: of all processes.
        count: how many connections this one has.
    """

    def __init__(
        self,
        turns: SharedTurns,
        number: int,
        count: Callable[[], int],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._turns = turns
        self._number = number
        self._count = count
        self._clock = clock
        self._sleep = sleep
        self._since = self._asked = clock() - 2 * FRESH_S
        self._others: list[int] = []
        self.tell()

    def tell(self) -> None:
        """Say how many there are now."""
        self._turns.tell(self._number, self._count())

    def has_come(self) -> bool:
        """Whether this process takes the connection that waits."""
        others = self._turns.beside(self._number)
        if not others or self._count() < min(others) + SLACK:
            return True
        now, asked = self._clock(), self._asked
        self._asked = now
        if now - asked > FRESH_S or others != self._others:
            self._since, self._others = now, others
        if now - self._since >= PATIENCE_S:
            return True
        self._sleep(STEP_S)  # the loop is asked again at once: the connection still waits
        return False
