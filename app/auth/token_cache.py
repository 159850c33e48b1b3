"""Tokens that were looked up a moment ago: a read need not ask the metadata who asks.

What was found holds for HOLDS_S at most, and not beyond a revocation by this process, or anything that
others are known to have written to the metadata. A revocation by another instance ends it when it is heard,
and after HOLDS_S where it is not: it is answered once that time is over. Requests that change anything are
always looked up.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

from app.auth.service import TOKEN_OF_SECRET, Caller, authenticate, hash_of, judge
from app.db import Database

HOLDS_S: Final = 1.0
KEPT_MAX: Final = 1_000
READING: Final = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class _Found:
    caller: Caller
    rights: tuple[int, int]
    until_s: float


class TokenCache:
    """Callers by the hash of their secret; any thread.

    Args:
        monotonic: seconds.
    Attributes:
        turn: of streams that ask whether their token is still good; one event loop's.
    """

    def __init__(self, database: Database, monotonic: Callable[[], float]) -> None:
        self._database = database
        self._monotonic = monotonic
        self._kept: dict[bytes, _Found] = {}
        self.turn = asyncio.Lock()

    def known(self, secret: str, *, now: datetime) -> Caller | None:
        """Who has this secret, without any statement or wait; None: look it up."""
        found = self._kept.get(_key(secret))
        if found is None or found.until_s <= self._monotonic():
            return None
        if self._database.rights() != found.rights:
            return None
        expires_at = found.caller.expires_at
        return None if expires_at is not None and expires_at <= now else found.caller

    def look_up(self, secret: str, *, now: datetime) -> Caller:
        """Ask the metadata.

        Raises: Unauthenticated, TokenExpired.
        """
        begun = self._begin()
        with self._database.reading() as db:
            caller = authenticate(db, secret, now=now)
        return self._keep(secret, caller, begun)

    async def look_up_soon(self, secret: str, *, now: datetime) -> Caller | None:
        """The same by the event loop itself; None: it cannot be asked so now.

        Raises: Unauthenticated, TokenExpired.
        """
        begun = self._begin()
        rows = await self._database.rows_soon(TOKEN_OF_SECRET, secret_sha256=hash_of(secret))
        if rows is None:
            return None
        return self._keep(secret, judge(rows[0] if rows else None, now=now), begun)

    def _begin(self) -> tuple[tuple[int, int], float]:
        # Taken before the look: what is written during it is news to what it found.
        return self._database.rights(), self._monotonic() + HOLDS_S

    def _keep(self, secret: str, caller: Caller, begun: tuple[tuple[int, int], float]) -> Caller:
        if len(self._kept) >= KEPT_MAX:
            self._kept = {}
        self._kept[_key(secret)] = _Found(caller, *begun)
        return caller


def _key(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
