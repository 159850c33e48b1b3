"""The lease of a backup session, renewed while a command runs."""

import threading
import time
from collections.abc import Callable
from typing import Final

from lethe_client import (
    BackupSession,
    Lethe,
    LetheError,
    ServerFailed,
    ServiceUnavailable,
    TooManyRequests,
    TransportFailed,
)

from app.cli.output import Output

PARTS_OF_LEASE: Final = 3
AGAIN_S: Final = 2.0
JOIN_S: Final = 10.0
PASSING: Final = (TransportFailed, ServiceUnavailable, TooManyRequests, ServerFailed)


class Renewal:
    """Renews a session three times a lease; `lost` says why it could not be any more.

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
        held_until_s = time.monotonic() + lease_s
        pause_s = lease_s / PARTS_OF_LEASE
        while not self._ended.wait(pause_s):
            asked_s = time.monotonic()
            try:
                self._client.backups.renew(self._session.store, self._session.id)
            except PASSING as error:
                if time.monotonic() >= held_until_s:
                    self._lose(f"it could not be renewed in time: {error}")
                    return
                self._out.note(f"lethe: not renewed yet: {error}")
                pause_s = min(AGAIN_S, lease_s / PARTS_OF_LEASE)
            except LetheError as error:
                self._lose(str(error))
                return
            else:
                held_until_s = asked_s + lease_s
                pause_s = lease_s / PARTS_OF_LEASE

    def _lose(self, reason: str) -> None:
        self.lost = reason
        self._out.note(f"lethe: BACKUP_LOST: {reason}; the command is ended, its copy is no backup")
        self._on_loss()
