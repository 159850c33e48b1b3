"""What stands beside the rows of the log, read for many units at once: events and sequences.

A page has a hundred units, most of which have neither. How many are held at once is bounded: where so many
belong to a single unit, each unit is asked for by itself.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import Final, Generic, TypeVar

AHEAD_MAX: Final = 1_000
"""Read for later units at once."""
Found = TypeVar("Found")


class Beside(Generic[Found]):
    """What a page's units have beside their rows; each unit is asked for once, in order.

    Args:
        read: those behind one seqno up to another, at most so many (None: all), in the order of their seqnos,
            which stand before them. All calls must see the same snapshot.
        last: seqno of the last unit.
    """

    def __init__(
        self,
        read: Callable[[int, int, int | None], list[tuple[int, Found]]],
        last: int,
        *,
        most: int = AHEAD_MAX,
    ) -> None:
        self._read, self._last, self._most = read, last, most
        self._found: list[tuple[int, Found]] = []
        self._known_upto = -1
        self._is_dense = False

    def of_unit(self, after: int, upto: int) -> list[Found]:
        """Those of the unit behind one SYNC up to another."""
        if upto > self._known_upto and not self._is_dense:
            self._look_ahead(after)
        if upto > self._known_upto:
            self._is_dense = True
            return [each for _seqno, each in self._read(after, upto, None)]
        mine = [each for _seqno, each in takewhile(lambda found: found[0] <= upto, self._found)]
        del self._found[: len(mine)]
        return mine

    def _look_ahead(self, after: int) -> None:
        self._found = self._read(after, self._last, self._most)
        if len(self._found) < self._most:
            self._known_upto = self._last
            return
        self._known_upto = self._found[-1][0] - 1  # more may follow under the last number
        while self._found and self._found[-1][0] > self._known_upto:
            self._found.pop()
