"""A job's events as a stream, and the long poll on its state."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

from starlette.concurrency import run_in_threadpool

from app.db import Database
from app.errors import InvalidHeader
from app.jobs.models import JobEventRead, JobRead
from app.jobs.queries import read_events
from app.jobs.states import TERMINAL
from app.jobs.watch import JobChange, JobWatch, Waiter
from app.kit.http.sse import KEEPALIVE, format_event

DIGITS_MAX: Final = 15


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


def resume_point(last_event_id: str | None) -> int:
    """The sequence after which a stream goes on. Raises: InvalidHeader."""
    if last_event_id is None or last_event_id == "":
        return 0
    if not (last_event_id.isascii() and last_event_id.isdigit()) or len(last_event_id) > DIGITS_MAX:
        raise InvalidHeader("Last-Event-ID is the id of an event of this job")
    return int(last_event_id)


async def stream_events(
    watch: JobWatch,
    database: Database,
    job: JobRead,
    *,
    after: int,
    keepalive_s: float,
    is_good: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    """Yield server-sent events after a sequence until the job's last; none twice, none left out.

    Args:
        is_good: whether the reader's token may still be used; the stream ends with it.
    """
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
                if not await is_good():
                    return
                yield KEEPALIVE
                continue
            if change is None or not await is_good():
                return
            gap = bool(change.events) and change.events[0].seq > last + 1
            body, last = (b"", last) if gap else _frames(change.events, last)
            if body:
                yield body
            behind, waiter.lagged = waiter.lagged or last < change.sequence, False
            ended = change.job.state in TERMINAL
