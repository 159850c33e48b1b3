"""A driver's session that dies at one of its calls, before the server has heard of it or after that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import psycopg

CALLS = ("begin", "run", "run_made", "run_rows", "run_many", "copy_in", "commit")


class Dying:
    """A session; its call number `at` is the last one.

    Args:
        after: the server does what it was asked.
        die: the end; None: the connection breaks.
    """

    def __init__(
        self, session: Any, at: int, *, after: bool, die: Callable[[], NoReturn] | None = None
    ) -> None:
        self.session, self.at, self.after, self.calls = session, at, after, 0
        self._die = die or self._break

    def _break(self) -> NoReturn:
        self.session.close()
        raise psycopg.OperationalError("the connection is gone")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.session, name)
        if name not in CALLS:
            return found

        def call(*args: Any, **words: Any) -> Any:
            self.calls += 1
            if self.calls != self.at:
                return found(*args, **words)
            if self.after:
                found(*args, **words)
            return self._die()

        return call
