"""Looks that are made when there is a reason: something was written, or a time has come."""

from collections.abc import Callable
from typing import Final

LONGEST_S: Final = 180.0
"""A look that nothing asks for is made all the same: who wrote may have gone unheard."""


class Gate:
    """Opens for a look when there is news, or the time that the last look named; of one thread.

    Args:
        news: a number that grows with whatever may have changed.
        monotonic: seconds.
    """

    def __init__(
        self, news: Callable[[], int], monotonic: Callable[[], float], *, longest_s: float = LONGEST_S
    ) -> None:
        self._news = news
        self._monotonic = monotonic
        self._longest_s = longest_s
        self._seen: int | None = None
        self._opens_at = 0.0
        self.has_news = True
        """Whether somebody has written since the look before the last."""

    def opens(self) -> bool:
        """Whether to look now; what comes while somebody looks opens it again."""
        news = self._news()
        if news == self._seen and self._monotonic() < self._opens_at:
            return False
        self.has_news = news != self._seen
        self._seen, self._opens_at = news, self._monotonic() + self._longest_s
        return True

    def rests_for(self, seconds: float | None) -> None:
        """Open again after so many seconds at the latest; None: when there is news."""
        length = self._longest_s if seconds is None else max(0.0, min(seconds, self._longest_s))
        self._opens_at = self._monotonic() + length

    def forget(self) -> None:
        """The look has failed: it is made again."""
        self._seen = None
