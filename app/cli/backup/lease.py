"""The lease of a backup session: renewed while a command runs, and the time in which it can still be ended.

The promise holds for as long as the lease does, whether the service answers or not: a service that restarts
meanwhile takes nothing from it. So whoever finds nobody there asks again until the lease is over.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from lethe_client import (
    BackupEnd,
    BackupSession,
    Lethe,
    LetheError,
    ServerFailed,
    ServiceUnavailable,
    TooManyRequests,
    TransportFailed,
)

from app.cli.shell.output import Output

PARTS_OF_LEASE: Final = 4
AGAIN_S: Final = 2.0
JOIN_S: Final = 10.0
PASSING: Final = (TransportFailed, ServiceUnavailable, TooManyRequests, ServerFailed)


class Renewal:
    """Renews a session four times a lease; `lost` says why it could not be any more.

    Args:
        on_loss: called once, in the thread that renews, when the promise does not hold any more.
    """

    def __init__(
        self, client: Lethe, session: BackupSession, out: Output, *, on_loss: Callable[[], None]
    ) -> None:
        self._client = client
        self._session = session
        self._out = out
        self._on_loss = on_loss
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lethe-renewal", daemon=True)
        self.lost: str | None = None
        self.held_until_s = time.monotonic() + session.lease.total_seconds()
        """Until then, by the monotonic clock, the session holds whatever happens."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a renewal that is under way is waited for."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        lease_s = self._session.lease.total_seconds()
        pause_s = lease_s / PARTS_OF_LEASE
        while not self._ended.wait(pause_s):
            asked_s = time.monotonic()
            try:
                self._client.backups.renew(self._session.store, self._session.id)
            except PASSING as error:
                if time.monotonic() >= self.held_until_s:
                    self._lose(f"it could not be renewed in time: {error}")
                    return
                self._out.note(f"lethe: not renewed yet: {error}")
                pause_s = min(AGAIN_S, lease_s / PARTS_OF_LEASE)
            except LetheError as error:
                self._lose(str(error))
                return
            else:
                self.held_until_s = asked_s + lease_s
                pause_s = lease_s / PARTS_OF_LEASE

    def _lose(self, reason: str) -> None:
        self.lost = reason
        self._out.note(f"lethe: BACKUP_LOST: {reason}; the command is ended, its copy is no backup")
        self._on_loss()


def end_in_time(client: Lethe, store: str, session_id: str, out: Output, *, until_s: float) -> BackupEnd:
    """End a session and learn whether the copy is whole; a service that is away is asked again.

    Args:
        until_s: when the session's lease is over, by the monotonic clock.
    Raises: LetheError: the answer that it was, or the last of those that were none.
    """
    while True:
        try:
            return client.backups.end(store, session_id)
        except PASSING as error:
            if time.monotonic() + AGAIN_S >= until_s:
                raise
            out.note(f"lethe: not ended yet, the files are still held: {error}")
        time.sleep(AGAIN_S)
