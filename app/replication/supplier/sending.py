"""One epoch of a session as its threads use it: batches that are sent again, and the lease that is kept."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, Self

from app.clock import Clock
from app.kit.durations import format_duration
from app.replication.peer.answers import PeerError, PeerRefused, PeerTooSlow
from app.replication.peer.client import PeerClient
from app.replication.supplier.batches import Outgoing
from app.replication.supplier.pipeline import Sent
from app.replication.supplier.signals import OVER, is_passing

TRIES_MAX: Final = 4
SLOW_TRIES_MAX: Final = 2
"""Of requests whose whole time was over: each has cost that time."""
RETRY_FIRST_S: Final = 0.2
RETRY_MAX_S: Final = 2.0
RENEW_SHARE: Final = 3
"""A lease is renewed when a third of it has passed without an answer."""


class Epoch:
    """The lease of one acquire.

    Args:
        lease_s: for how long the consumer keeps it after each answer.
    """

    def __init__(
        self, client: PeerClient, *, session_id: str, epoch: int, lease_s: float, clock: Clock
    ) -> None:
        self.client = client
        self.session_id = session_id
        self.epoch = epoch
        self.lease_s = lease_s
        self._clock = clock
        self._heard_at_s = clock.boottime_s()
        self._over: PeerError | None = None
        self._stopped = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="lethe-peer-lease", daemon=True)

    def __enter__(self) -> Self:
        self._keeper.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._keeper.join()

    @property
    def until(self) -> datetime:
        """When the lease is over at the latest, if nothing is sent from now on."""
        return self._clock.now() + timedelta(seconds=self.lease_s)

    def check(self) -> None:
        """Raise what has ended the lease.

        Raises: PeerRefused.
        """
        if self._over is not None:
            raise self._over

    def send(self, seq: int, batch: Outgoing, gives_up: Callable[[], bool]) -> Sent:
        """Encode a batch and send it until it is answered; the consumer knows its number.

        Raises: PeerError: no answer after TRIES_MAX, or a refusal.
        """
        begun_s = self._clock.boottime_s()
        body = batch.encode()
        delay_s = RETRY_FIRST_S
        for attempt in range(1, TRIES_MAX + 1):
            try:
                answer = self.client.send(self.session_id, epoch=self.epoch, batch_seq=seq, body=body)
            except PeerError as error:
                tries_max = SLOW_TRIES_MAX if isinstance(error, PeerTooSlow) else TRIES_MAX
                if attempt >= tries_max or gives_up() or not is_passing(error):
                    raise
                self._stopped.wait(delay_s)
                delay_s = min(RETRY_MAX_S, 2 * delay_s)
            else:
                self._heard_at_s = self._clock.boottime_s()
                return Sent(seq, batch, len(body), self._heard_at_s - begun_s, answer)
        raise AssertionError("the last attempt returns or raises")

    def _keep(self) -> None:
        """Renew the lease while batches are long in coming; who sends finds out about other troubles."""
        every_s = self.lease_s / RENEW_SHARE
        while not self._stopped.wait(min(1.0, every_s / 2)):
            if self._clock.boottime_s() - self._heard_at_s < every_s:
                continue
            try:
                lease = format_duration(timedelta(seconds=self.lease_s))
                self.client.renew(self.session_id, epoch=self.epoch, lease=lease)
                self._heard_at_s = self._clock.boottime_s()
            except PeerRefused as error:
                if error.code in OVER:
                    self._over = error
                    return
            except PeerError:
                continue
