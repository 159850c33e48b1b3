"""Who waits for changes of replicas: one task of a process looks for all, each reader has a place in it.

Rules:
- a reader that waits costs its place and an asyncio event: no thread, no connection, no statement;
- a replica is looked at once for all of its readers; of a SQLite file that nobody has touched not even that;
- a local write of this process wakes its readers at once, what sessions or others bring the next look;
- what readers read at once is bounded by threads of their own; two that ask the same share one page;
- a token that is revoked or expires, and a store that is removed, end its streams.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import structlog

from app.auth.service import Caller
from app.clock import Clock
from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable, ServiceError, TooMany
from app.replication.feed.looks import Look, look_at, still_good
from app.replication.feed.pages import Asked, Start
from app.settings import Settings
from spark.replication.feed.reading import FeedPage, Starting

LOOK_S: Final = 1.0
AWAY_MAX_S: Final = 30.0
TOKENS_S: Final = 5.0
THREADS: Final = 4
FORMS: Final = ("JSON", "SSE", "ARROW")
T = TypeVar("T")
logger = structlog.get_logger("lethe.change_feeds")


@dataclass(slots=True, eq=False)
class FeedReader:
    """One request that reads a feed."""

    caller: Caller
    store_id: str
    form: str
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False

    def end(self) -> None:
        """Let it end soon."""
        self.is_over = True
        self.woken.set()


@dataclass(slots=True)
class _Watched:
    """One replica: its readers, what the last look saw, and when the next one is due."""

    readers: set[FeedReader] = field(default_factory=set)
    seen: Look | None = None
    due_s: float = 0.0
    failures: int = 0
    wakes: int = 0
    task: asyncio.Task[None] | None = None


class ChangeFeeds:
    """The readers of this process."""

    def __init__(self, database: Database, settings: Settings, clock: Clock) -> None:
        self._database, self._settings, self._clock = database, settings, clock
        self._watched: dict[str, _Watched] = {}
        self._by_token: Counter[str] = Counter()
        self._pages: dict[tuple[object, ...], asyncio.Task[FeedPage]] = {}
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._threads: anyio.CapacityLimiter | None = None
        self._is_closed = False
        self.told: Counter[str] = Counter()
        """Changes that were given to readers, by form."""

    async def start(self) -> None:
        """Begin to look, once somebody reads."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(), name="lethe-change-feeds")

    def notify(self, store_id: str) -> None:
        """This process has committed changes of a replica. Any thread."""
        if store_id in self._watched and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_readers, store_id)

    def end_waits(self) -> None:
        """End every stream, and those that come later at once: the service stops. Any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_waits)

    async def close(self) -> None:
        """Stop looking."""
        self._end_waits()
        tasks = [watched.task for watched in self._watched.values()]
        for task in (self._task, *tasks):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    @property
    def open_by_form(self) -> Counter[str]:
        """How many readers there are, by form."""
        return Counter(reader.form for watched in self._watched.values() for reader in watched.readers)

    @asynccontextmanager
    async def reading(self, caller: Caller, store_id: str, form: str) -> AsyncIterator[FeedReader]:
        """Register a reader for the time of the block.

        Raises: TooMany: as many read as may, in all or of this token.
        """
        if self._by_token.total() >= self._settings.change_feeds_max:
            raise _too_many("too many change feeds are open")
        if self._by_token[caller.token_id] >= self._settings.change_feeds_per_token_max:
            raise _too_many("too many change feeds of this token are open; close some")
        reader = FeedReader(caller, store_id, form, is_over=self._is_closed)
        self._by_token[caller.token_id] += 1
        watched = self._watched.setdefault(store_id, _Watched())
        watched.readers.add(reader)
        self._wake.set()
        try:
            yield reader
        finally:
            self._by_token[caller.token_id] -= 1
            if not self._by_token[caller.token_id]:
                del self._by_token[caller.token_id]
            watched.readers.discard(reader)
            if not watched.readers and self._watched.get(store_id) is watched:
                del self._watched[store_id]

    async def page(self, asked: Asked, start: Start) -> FeedPage:
        """Read a page; readers that stand at the same place and want the same share it.

        Raises: ServiceError.
        """
        name = start.value if isinstance(start, Starting) else start.text()
        watched = self._watched.get(asked.store.id)
        # One that was begun before a wake does not have what woke.
        wakes = 0 if watched is None else watched.wakes
        key = (asked.store.id, asked.keys, asked.rows_max, asked.bytes_max, name, wakes)
        task = self._pages.get(key)
        if task is None:
            read = partial(asked.read, self._database, self._settings, start)
            task = self._pages[key] = asyncio.ensure_future(self._in_thread(read))
            task.add_done_callback(partial(self._forget, key))
        return await asyncio.shield(task)

    def _forget(self, key: tuple[object, ...], task: asyncio.Task[FeedPage]) -> None:
        del self._pages[key]
        if not task.cancelled():
            task.exception()  # who waited for it has gone: nobody misses it

    async def _in_thread(self, act: "partial[T]") -> T:
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(THREADS)
        return await anyio.to_thread.run_sync(act, limiter=self._threads)

    def _wake_readers(self, store_id: str) -> None:
        watched = self._watched.get(store_id)
        if watched is None:
            return
        watched.wakes += 1
        for reader in watched.readers:
            reader.woken.set()

    def _end_waits(self) -> None:
        self._is_closed = True
        for watched in self._watched.values():
            for reader in watched.readers:
                reader.end()

    async def _run(self) -> None:
        tokens_at_s = 0.0
        while True:
            if not self._watched:
                self._wake.clear()
                await self._wake.wait()
            now_s = self._clock.boottime_s()
            if now_s - tokens_at_s >= TOKENS_S:
                tokens_at_s = now_s
                await self._end_strangers()
            for store_id, watched in self._watched.items():
                if watched.due_s <= now_s and (watched.task is None or watched.task.done()):
                    watched.task = asyncio.create_task(self._look(store_id, watched))
            await asyncio.sleep(LOOK_S)

    async def _end_strangers(self) -> None:
        """End the readers whose token or store is gone."""
        readers = [reader for watched in self._watched.values() for reader in watched.readers]
        tokens = frozenset(reader.caller.token_id for reader in readers)
        stores = frozenset(self._watched)
        try:
            good, there = await self._in_thread(
                partial(still_good, self._database, tokens, stores, now=self._clock.now())
            )
        except (MetadataUnavailable, MetadataBusy) as error:
            logger.warning("metadata away", error=error.detail)
            return
        now = self._clock.now()
        for reader in readers:
            expires_at = reader.caller.expires_at
            is_expired = expires_at is not None and expires_at <= now
            if is_expired or reader.caller.token_id not in good or reader.store_id not in there:
                reader.end()

    async def _look(self, store_id: str, watched: _Watched) -> None:
        """Look whether a replica has changed; one that cannot be asked is asked ever less often."""
        now_s = self._clock.boottime_s()
        try:
            found = await self._in_thread(
                partial(look_at, self._database, self._settings, store_id, watched.seen, now_s=now_s)
            )
        except ServiceError as error:
            watched.failures += 1
            watched.due_s = now_s + min(AWAY_MAX_S, 2.0**watched.failures)
            logger.warning("replica away", store=store_id, error=error.code)
            return
        watched.failures, watched.due_s = 0, now_s
        # Before the first look nobody knows what came since the readers have read.
        is_new = watched.seen is None or found.vectors != watched.seen.vectors
        watched.seen = found
        if is_new:
            self._wake_readers(store_id)


def _too_many(detail: str) -> ServiceError:
    return TooMany(detail, code="TOO_MANY_FEEDS", headers={"Retry-After": "5"})
