"""The feed for many listeners: one task of a process numbers and reads it, each listener has a place in it.

Rules:
- a listener costs its place and an asyncio event; what it has not taken yet is kept for nobody alone;
- who is behind what is remembered here reads pages of the metadata until it is not;
- a token that is revoked or expires ends its streams; nothing is asked while nobody listens.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import structlog
from sqlmodel import Session, col, or_, select
from starlette.concurrency import run_in_threadpool

from app.auth.rows import Token
from app.auth.service import PROVIDER_PREFIX, Caller
from app.clock import Clock
from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable, TooMany
from app.feed.numbering import give_numbers
from app.fleet.queries import NumberedEvent, Reach, events_after, reach_of

REMEMBERED_MAX: Final = 2_000
PAGE: Final = 500
LOOK_S: Final = 0.5
PACE_S: Final = 0.1
TOKENS_S: Final = 2.0
logger = structlog.get_logger("lethe.feed")


@dataclass(slots=True, eq=False)
class Listener:
    """One open stream."""

    caller: Caller
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False

    def end(self) -> None:
        """Let its stream end soon."""
        self.is_over = True
        self.woken.set()


class FeedWatch:
    """Tells the listeners of this process what any process has committed."""

    def __init__(self, database: Database, clock: Clock, *, listeners_max: int) -> None:
        self._database = database
        self._clock = clock
        self._listeners_max = listeners_max
        self._listeners: set[Listener] = set()
        self._remembered: deque[NumberedEvent] = deque(maxlen=REMEMBERED_MAX)
        self._last: int | None = None
        self._seen_news: int | None = None
        self._tokens_at_s = 0.0
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Begin to look, once somebody listens."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(), name="lethe-feed")

    def notify(self, _job_id: str) -> None:
        """Something of this process has changed: look now. Any thread."""
        if self._listeners and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    def end_waits(self) -> None:
        """End every stream, and those that come later at once: the service stops. Any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_waits)

    def _end_waits(self) -> None:
        self._is_closed = True
        for listener in self._listeners:
            listener.end()

    async def close(self) -> None:
        """Stop looking."""
        self._end_waits()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @asynccontextmanager
    async def listening(self, caller: Caller) -> AsyncIterator[Listener]:
        """Register a listener for the time of the block.

        Raises: TooMany: as many listen as may.
        """
        if len(self._listeners) >= self._listeners_max:
            raise TooMany("too many streams are open", code="TOO_MANY_WAITERS", headers={"Retry-After": "5"})
        listener = Listener(caller, is_over=self._is_closed)
        self._listeners.add(listener)
        self._wake.set()
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    @property
    def place(self) -> int | None:
        """The last number that this process has read; None: nobody listens."""
        return self._last

    async def reach(self) -> Reach:
        """Number what is committed now; from where to where can be told."""

        def look() -> Reach:
            give_numbers(self._database)
            with self._database.reading() as db:
                return reach_of(db)

        return await run_in_threadpool(look)

    async def after(self, number: int) -> list[NumberedEvent]:
        """The next events after a number, in order; none: it is at the end, for now."""
        if self._last is None or number >= self._last:
            return []
        first = self._remembered[0].number if self._remembered else self._last + 1
        if first <= number + 1:
            return list(islice(self._since(number), PAGE))
        return await run_in_threadpool(self._page, number)

    def _since(self, number: int) -> Iterator[NumberedEvent]:
        return (each for each in self._remembered if each.number > number)

    def _page(self, number: int) -> list[NumberedEvent]:
        with self._database.reading() as db:
            return events_after(db, number, limit=PAGE)

    async def _run(self) -> None:
        while True:
            if not self._listeners:
                self._last, self._seen_news = None, None
                self._remembered.clear()
                await self._wake.wait()
            self._wake.clear()
            try:
                await self._look()
            except (MetadataUnavailable, MetadataBusy) as error:
                self._seen_news = None
                logger.warning("metadata away", error=error.detail)
            await asyncio.sleep(PACE_S)  # a burst of changes is one look
            try:
                await asyncio.wait_for(self._wake.wait(), LOOK_S)
            except TimeoutError:
                continue

    async def _look(self) -> None:
        self._end_expired()
        news = self._database.news()
        if self._database.is_sqlite and news == self._seen_news:
            return  # nobody has written: asking costs no statement
        tokens = self._tokens_to_ask()
        last, found, good = await run_in_threadpool(self._read, self._last, tokens)
        for listener in self._listeners:
            if listener.caller.token_id in tokens and listener.caller.token_id not in good:
                listener.end()
        is_whole = not found or found[-1].number >= last
        self._remembered.extend(found)
        is_new = self._last is None or bool(found)
        self._last = found[-1].number if found else last
        self._seen_news = news if is_whole else None
        if not is_whole:
            self._wake.set()
        if is_new:
            for listener in self._listeners:
                listener.woken.set()

    def _end_expired(self) -> None:
        now = self._clock.now()
        for listener in self._listeners:
            expires_at = listener.caller.expires_at
            if expires_at is not None and expires_at <= now:
                listener.end()

    def _tokens_to_ask(self) -> frozenset[str]:
        """The tokens of all listeners, where it is time to ask; callers of a provider have no row."""
        now_s = self._clock.boottime_s()
        if not self._database.is_sqlite and now_s - self._tokens_at_s < TOKENS_S:
            return frozenset()
        self._tokens_at_s = now_s
        ids = (listener.caller.token_id for listener in self._listeners)
        return frozenset(each for each in ids if not each.startswith(PROVIDER_PREFIX))

    def _read(
        self, after: int | None, tokens: frozenset[str]
    ) -> tuple[int, list[NumberedEvent], frozenset[str]]:
        """The last number, what came after another, and which of the tokens are good."""
        last = give_numbers(self._database)
        with self._database.reading() as db:
            found = events_after(db, after, limit=PAGE) if after is not None and after < last else []
            return last, found, self._good(db, tokens)

    def _good(self, db: Session, tokens: frozenset[str]) -> frozenset[str]:
        if not tokens:
            return tokens
        is_good = col(Token.revoked_at).is_(None) & or_(
            col(Token.expires_at).is_(None), col(Token.expires_at) > self._clock.now()
        )
        return frozenset(db.exec(select(Token.id).where(col(Token.id).in_(tokens), is_good)).all())
