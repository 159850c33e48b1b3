"""Consumers that had nothing to be sent for a while, asked what they have: one that was restored has less.

Nobody tells a supplier that its consumer was put back from a backup. Where nothing new comes no session would
find it: the agreement would show no lag, and what the consumer lacks would be trimmed as acknowledged.

Rules:
- asking is nobody's business but its thread's: a look never waits for an answer, it finds it the next time;
- who does not answer is asked ever less often; that it is away is told where there is something to send.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog

from app.db import Database
from app.errors import ServiceError
from app.kit.rests import Rest
from app.replication.agreements.service import address_of
from app.replication.peer.answers import PeerError, PeerReplica
from app.replication.peer.client import PeerClient
from app.replication.rows import Agreement
from app.settings import Settings
from spark.formats.csn import Csn
from spark.replication.records import ReplicaStatus, Snapshot

HEARD: Final = timedelta(minutes=5)
"""So long nobody doubts what a session has heard; as 389's own look at idle agreements."""
REST_AWAY_MAX: Final = timedelta(hours=1)
AT_ONCE_MAX: Final = 2
ANSWER_TIMEOUT_S: Final = 5.0
logger = structlog.get_logger("lethe.replication")
Ask = Callable[[Agreement], PeerReplica]
"""Asks a consumer for its vectors, without its lease. Raises: PeerError, ServiceError."""


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the supplier has, all of it acknowledged."""

    generation: str | None
    ruv: Mapping[int, Csn]

    def is_more_than(self, theirs: PeerReplica) -> bool:
        """Whether a consumer lacks some of it; one that is being copied is another supplier's business."""
        if theirs.status == ReplicaStatus.INITIALIZING:
            return False
        if theirs.ruv is None or theirs.generation != self.generation:
            return True
        return any(csn > theirs.ruv.get(rid, "") for rid, csn in self.ruv.items())


class SilentConsumers:
    """Who was asked when, and who has less than it had; kept from look to look. Any thread."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._rests: dict[str, Rest] = {}
        self._asked: set[str] = set()
        self._behind: set[str] = set()

    def take_behind(self, agreement: Agreement, seen: Snapshot, ask: Ask, *, now: datetime) -> bool:
        """Whether a consumer that has acknowledged all was found to have less; asks it where it is time to.

        Args:
            seen: the supplier.
        """
        with self._guard:
            if agreement.id in self._behind:
                self._behind.discard(agreement.id)
                return True
            if not self._is_time(agreement, now):
                return False
            self._asked.add(agreement.id)
        shown = _Shown(seen.replica.generation, dict(seen.vectors.ruv))
        work = (agreement, shown, ask, now)
        threading.Thread(target=self._look, args=work, name="lethe-silent-consumer", daemon=True).start()
        return False

    def _is_time(self, agreement: Agreement, now: datetime) -> bool:
        heard_at, rest = agreement.last_ended_at, self._rests.get(agreement.id)
        is_doubted = heard_at is not None and now >= heard_at + HEARD
        is_resting = rest is not None and now < rest.until
        is_free = agreement.id not in self._asked and len(self._asked) < AT_ONCE_MAX
        return is_doubted and not is_resting and is_free

    def _look(self, agreement: Agreement, shown: _Shown, ask: Ask, now: datetime) -> None:
        is_behind, is_away = False, False
        try:
            is_behind = shown.is_more_than(ask(agreement))
        except (PeerError, ServiceError) as error:
            logger.info("a silent consumer could not be asked", agreement=agreement.id, error=error.code)
            is_away = True
        finally:
            with self._guard:
                self._asked.discard(agreement.id)
                before = self._rests.get(agreement.id) if is_away else None
                self._rests[agreement.id] = Rest.after(before, now=now, first=HEARD, longest=REST_AWAY_MAX)
                if is_behind:
                    self._behind.add(agreement.id)

    def forget_others(self, agreement_ids: set[str]) -> None:
        """Forget all that are gone."""
        with self._guard:
            for gone in self._rests.keys() - agreement_ids:
                del self._rests[gone]
            self._behind &= agreement_ids


def ask_consumer(database: Database, settings: Settings, agreement: Agreement) -> PeerReplica:
    """Ask over the network.

    Raises: PeerError, ServiceError.
    """
    address = address_of(agreement, settings, database)
    with PeerClient(address, answer_timeout_s=ANSWER_TIMEOUT_S) as client:
        return client.ruv()
