"""Tokens that were looked up a moment ago: a read need not ask the metadata who asks.

What was found holds as long as nobody is known to have written to the metadata, and for HOLDS_S at most. A
revocation by this process ends it at once; that of another instance when it is heard, and after HOLDS_S where
it is not: it is answered once that time is over. Requests that change anything are always looked up.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

from app.auth.service import Caller, authenticate
from app.db import Database

HOLDS_S: Final = 1.0
KEPT_MAX: Final = 1_000
READING: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class _Found:
    caller: Caller
    news: int
    until_s: float


class TokenCache:
    """Callers by the hash of their secret; any thread.

    Args:
        monotonic: seconds.
    """

    def __init__(self, database: Database, monotonic: Callable[[], float]) -> None:
        self._database = database
        self._monotonic = monotonic
        self._kept: dict[bytes, _Found] = {}

    def known(self, secret: str, *, now: datetime) -> Caller | None:
        """Who has this secret, without any statement or wait; None: look it up."""
        found = self._kept.get(_key(secret))
        if found is None or found.until_s <= self._monotonic():
            return None
        if self._database.news_at_once() != found.news:
            return None
        expires_at = found.caller.expires_at
        return None if expires_at is not None and expires_at <= now else found.caller

    def look_up(self, secret: str, *, now: datetime) -> Caller:
        """Ask the metadata.

        Raises: Unauthenticated, TokenExpired.
        """
        # Taken before the look: what is written during it is news to what it found. None: somebody commits.
        news, since_s = self._database.news_at_once(), self._monotonic()
        with self._database.reading() as db:
            caller = authenticate(db, secret, now=now)
        if news is not None:
            self._keep(secret, _Found(caller, news, since_s + HOLDS_S))
        return caller

    def _keep(self, secret: str, found: _Found) -> None:
        if len(self._kept) >= KEPT_MAX:
            self._kept = {}
        self._kept[_key(secret)] = found


def _key(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
