"""Connections of psycopg that do not wait for a server without end."""

import math
import time
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen

Result = TypeVar("Result")
STEP_MAX_S: Final = 2.0
"""For more of a time in which this process was stopped no server is blamed."""


class Impatient(psycopg.Connection[tuple[Any, ...]]):
    """Ends where the server says nothing for too long while somebody waits for it.

    Nothing of libpq or of TCP does: the kernel of a server that hangs, or a proxy before it, acknowledges.
    """

    silent_max_s: float = math.inf

    def wait(self, gen: PQGen[Result], *args: Any, **kwargs: Any) -> Result:
        """Drive a step of the protocol, which ends with the connection where it takes too long."""
        return super().wait(self._heard(gen), *args, **kwargs)

    def _heard(self, gen: PQGen[Result]) -> PQGen[Result]:
        silent_s, at_s, ready = 0.0, time.monotonic(), None
        while True:
            try:
                wanted = gen.send(ready)  # type: ignore[arg-type]  # None begins it
            except StopIteration as end:
                found: Result = end.value
                return found
            ready = yield wanted
            step_s, at_s = min(time.monotonic() - at_s, STEP_MAX_S), time.monotonic()
            silent_s = 0.0 if ready else silent_s + step_s
            if silent_s > self.silent_max_s:
                self.close()
                raise psycopg.OperationalError(f"the server said nothing for {silent_s:.0f} s")
