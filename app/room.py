"""Whether a directory can still be written to; looked at seldom, however often it is asked."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final

LOOK_EVERY_S: Final = 2.0
PROBE_BYTES: Final = 4096
PROBE_NAME: Final = ".lethe-room"
SMALL_SHARE: Final = 20
"""On a small file system this part of it is room enough."""


@dataclass(slots=True)
class Room:
    """The room that is left in a directory; safe in threads.

    Args:
        least_bytes: less than this, and less than a twentieth of the file system, is no room.
    """

    directory: Path
    least_bytes: int
    clock: Callable[[], float] = time.monotonic
    _looked_at: float | None = None
    _problem: str | None = None
    _lock: Lock = field(default_factory=Lock)

    @property
    def free_bytes(self) -> int | None:
        """What may be written there now; None: nobody can tell."""
        try:
            found = os.statvfs(self.directory)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    def problem(self) -> str | None:
        """Why nothing can be written there, or None."""
        with self._lock:
            now = self.clock()
            if self._looked_at is None or now - self._looked_at >= LOOK_EVERY_S:
                self._problem, self._looked_at = self._look(), now
            return self._problem

    def _look(self) -> str | None:
        try:
            found = os.statvfs(self.directory)
            free, size = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
            if free < min(self.least_bytes, size // SMALL_SHARE):
                return f"{free} bytes are free"
            self._probe()  # a quota, a medium that has become read-only
        except OSError as error:
            return error.strerror or type(error).__name__
        return None

    def _probe(self) -> None:
        path = self.directory / PROBE_NAME
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.pwrite(descriptor, bytes(PROBE_BYTES), 0) < PROBE_BYTES:
                raise OSError("only a part of it could be written")
        finally:
            os.close(descriptor)
            os.unlink(path)
