"""Waiting for jobs: long polls and event streams that hold neither a thread nor a connection.

One task per process reads the rows of all watched jobs in one query and hands each change to its waiters.

Invariants:
- a waiter costs an asyncio queue and nothing else;
- what a waiter is handed was committed before; sequences per job only grow, so none is handed twice;
- one job that cannot be read keeps nobody from hearing of the others;
- a waiter that is too slow is told to read again, never starved silently (`Waiter.lagged`).
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import structlog
from pydantic import ValidationError
from sqlmodel import Session, col, select
from starlette.concurrency import run_in_threadpool

from app.db import Database
from app.errors import MetadataBusy, MetadataUnavailable, TooMany
from app.jobs.models import JobEventRead, JobRead, read_job
from app.jobs.queries import read_events
from app.jobs.rows import Job

QUEUE_MAX = 64
IDS_PER_QUERY = 500
logger = structlog.get_logger("lethe.watch")


@dataclass(frozen=True, slots=True)
class JobChange:
    """A job as it was at one look, and its events since the look before."""

    job: JobRead
    version: int
    sequence: int
    events: Sequence[JobEventRead]


@dataclass(slots=True, eq=False)
class Waiter:
    """One waiting request."""

    job_id: str
    queue: asyncio.Queue[JobChange | None] = field(default_factory=lambda: asyncio.Queue(QUEUE_MAX))
    lagged: bool = False

    def hand(self, change: JobChange | None) -> None:
        """Give it a change; None: the service stops."""
        if self.queue.full():
            self.queue.get_nowait()
            self.lagged = True
        self.queue.put_nowait(change)


class JobWatch:
    """Looks at watched jobs and wakes their waiters.

    Args:
        interval_s: the longest time until a change of another instance is seen.
    """

    def __init__(self, database: Database, *, interval_s: float, waiters_max: int) -> None:
        self._database = database
        self._interval_s = interval_s
        self._waiters_max = waiters_max
        self._waiters: dict[str, set[Waiter]] = defaultdict(set)
        self._seen: dict[str, JobChange] = {}
        self._unreadable: set[str] = set()
        self._count = 0
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        """Begin to look."""
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(), name="lethe-watch")

    def end_waits(self) -> None:
        """Let every waiter answer now, and those that come later at once: the service stops. Any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end_waits)

    def _end_waits(self) -> None:
        self._closed = True
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.hand(None)

    async def close(self) -> None:
        """Stop looking."""
        self._end_waits()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def is_closed(self) -> bool:
        """Whether the service stops."""
        return self._closed

    def notify(self, _job_id: str) -> None:
        """A job of this process has changed: look now. Any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    @asynccontextmanager
    async def waiting(self, job_id: str) -> AsyncIterator[Waiter]:
        """Register a waiter for the time of the block.

        Raises: TooMany: the service holds as many waiters as it may.
        """
        with self.place():
            async with self._registered(job_id) as waiter:
                yield waiter

    @contextmanager
    def place(self) -> Iterator[None]:
        """Count a request among those that wait, for whatever it waits.

        Raises: TooMany: the service holds as many waiters as it may.
        """
        if self._count >= self._waiters_max:
            raise TooMany("too many requests wait", code="TOO_MANY_WAITERS", headers={"Retry-After": "5"})
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    @asynccontextmanager
    async def _registered(self, job_id: str) -> AsyncIterator[Waiter]:
        waiter = Waiter(job_id)
        self._waiters[job_id].add(waiter)
        known = self._seen.get(job_id)
        if self._closed:
            waiter.hand(None)
        elif known is not None:  # it may be newer than what the request has read
            waiter.hand(known)
        self._wake.set()
        try:
            yield waiter
        finally:
            self._waiters[job_id].discard(waiter)
            if not self._waiters[job_id]:
                del self._waiters[job_id]
                self._seen.pop(job_id, None)
                self._unreadable.discard(job_id)

    async def _run(self) -> None:
        while True:
            if not self._waiters:
                await self._wake.wait()
            self._wake.clear()
            try:
                await self._look()
            except (MetadataUnavailable, MetadataBusy) as error:
                logger.warning("metadata away", error=error.detail)
            await asyncio.sleep(self._interval_s / 5)  # a burst of changes is one look
            try:
                await asyncio.wait_for(self._wake.wait(), self._interval_s)
            except TimeoutError:
                continue

    async def _look(self) -> None:
        ids = list(self._waiters)
        for first in range(0, len(ids), IDS_PER_QUERY):
            wanted = {job_id: self._seen.get(job_id) for job_id in ids[first : first + IDS_PER_QUERY]}
            for change in await run_in_threadpool(self._read, wanted):
                before = self._seen.get(change.job.id)
                assert before is None or before.sequence <= change.sequence, "sequences only grow"
                self._seen[change.job.id] = change
                for waiter in self._waiters.get(change.job.id, ()):
                    waiter.hand(change)

    def _read(self, wanted: dict[str, JobChange | None]) -> list[JobChange]:
        with self._database.reading() as db:
            versions = db.exec(select(Job.id, Job.version).where(col(Job.id).in_(list(wanted)))).all()
            changes = []
            for job_id, version in versions:
                seen = wanted[job_id]
                if seen is None or version > seen.version:
                    changes += self._read_one(db, job_id, seen)
            return changes

    def _read_one(self, db: Session, job_id: str, seen: JobChange | None) -> list[JobChange]:
        """The change of a job; none where a newer version, which may work beside us, has written its row."""
        try:
            return _read_change(db, job_id, seen)
        except ValidationError:
            if job_id not in self._unreadable:
                logger.warning("a job cannot be read: a newer version has written it", job_id=job_id)
            self._unreadable.add(job_id)
            return []


def _read_change(db: Session, job_id: str, seen: JobChange | None) -> list[JobChange]:
    """The job as it is now, and its events since the look before; empty when it has just been forgotten."""
    job = db.exec(select(Job).where(Job.id == job_id)).first()
    if job is None:
        return []
    events = [] if seen is None else read_events(db, job_id, after=seen.sequence)
    known = [event for event in events if event.seq <= job.event_seq]
    return [JobChange(job=read_job(job), version=job.version, sequence=job.event_seq, events=known)]
