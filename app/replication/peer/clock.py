"""How far ahead of this service's clock a peer may be, by the store's parameter; for either side."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from sqlmodel import Session

from app.clock import Clock
from app.parameters.service import effective_by_name
from app.parameters.spec import as_timedelta
from app.replication.peer.answers import PeerError
from app.stores.rows import Store
from spark.formats.csn import Csn
from spark.replication.session_errors import ClockSkewed
from spark.replication.sessions.clock_bound import news, require_in_time

AHEAD_MAX: Final = "replication.clock.ahead.max"


class PeerClockSkewed(PeerError):
    """The consumer shows CSNs that are too far ahead: it is not believed, and nothing of it is adopted."""

    code = ClockSkewed.code


def ahead_max_s_of(db: Session, store: Store) -> int:
    """How far ahead a peer of this store may be."""
    value = effective_by_name(db, AHEAD_MAX, store.parameters).value
    return int(as_timedelta(value).total_seconds())


def seconds_of(now: datetime) -> int:
    """A moment as CSNs have it."""
    return int(now.timestamp())


class ClockBound:
    """What a supplier believes of its consumer's times.

    Attributes:
        held: this replica's own RUV, as it was last looked at: what it has is no news.
    """

    def __init__(self, clock: Clock, *, ahead_max_s: int) -> None:
        self._clock = clock
        self._ahead_max_s = ahead_max_s
        self.held: Mapping[int, Csn] = {}

    def require(self, ruv: Mapping[int, Csn] | None) -> None:
        """Raise unless a consumer's RUV is one that this service's clock allows.

        Raises: PeerClockSkewed.
        """
        try:
            require_in_time(
                news(ruv or {}, self.held), now_s=seconds_of(self._clock.now()), ahead_max_s=self._ahead_max_s
            )
        except ClockSkewed as error:
            raise PeerClockSkewed(f"the consumer's {error.detail}") from error
