"""A job's events as a stream, and the long poll on its state."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from starlette.concurrency import run_in_threadpool

from app.db import Database
from app.jobs.models import JobEventRead, JobRead
from app.jobs.queries import read_events
from app.jobs.states import TERMINAL
from app.jobs.watch import JobChange, JobWatch, Waiter
from app.kit.http.sse import KEEPALIVE, format_event


async def _next_change(waiter: Waiter, timeout_s: float) -> JobChange | None:
    """The next change; None when the service stops.

    Raises: TimeoutError.
    """
    return await asyncio.wait_for(waiter.queue.get(), timeout_s)


async def wait_for_change(
    watch: JobWatch, job: JobRead, version: int, *, wait_for: str, timeout_s: float
) -> tuple[JobRead, int]:
    """Wait until a job's state (or any of its progress) differs, or the time is over.

    Returns: the newest job that was seen, and its row version.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    seen, seen_version = job, version
    async with watch.waiting(job.id) as waiter:
        while (left := deadline - loop.time()) > 0 and seen.state not in TERMINAL:
            try:
                change = await _next_change(waiter, left)
            except TimeoutError:
                break
            if change is None:
                break
            seen, seen_version = change.job, change.version
            differs = seen.state != job.state if wait_for == "state" else seen_version != version
            if differs:
                break
    return seen, seen_version


def _frames(events: Sequence[JobEventRead], after: int) -> tuple[bytes, int]:
    """Render the events after a sequence; returns them and the last sequence."""
    fresh = [event for event in events if event.seq > after]
    body = b"".join(
        format_event(sequence=event.seq, kind=event.type, data=event.model_dump(mode="json"))
        for event in fresh
    )
    return body, fresh[-1].seq if fresh else after


def _read(database: Database, job_id: str, after: int) -> list[JobEventRead]:
    with database.reading() as db:
        return read_events(db, job_id, after=after)


async def stream_events(
    watch: JobWatch, database: Database, job: JobRead, *, after: int, keepalive_s: float
) -> AsyncIterator[bytes]:
    """Yield server-sent events after a sequence until the job's last; none twice, none left out."""
    last, behind, ended = after, True, False
    async with watch.waiting(job.id) as waiter:
        yield b"retry: 1000\n\n"
        while True:
            if behind:
                while backlog := await run_in_threadpool(_read, database, job.id, last):
                    body, last = _frames(backlog, last)
                    yield body
            if ended:
                return
            try:
                change = await _next_change(waiter, keepalive_s)
            except TimeoutError:
                yield KEEPALIVE
                continue
            if change is None:
                return
            gap = bool(change.events) and change.events[0].seq > last + 1
            body, last = (b"", last) if gap else _frames(change.events, last)
            if body:
                yield body
            behind, waiter.lagged = waiter.lagged or last < change.sequence, False
            ended = change.job.state in TERMINAL
