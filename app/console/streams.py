"""What an open page hears: that something has changed, from the one feed of events.

An event of this stream carries no data: the page asks for its live part again, with its own rights. A burst
of events is one. What comes with time alone (a check that grows old, a wait that grows long, an instance that
falls silent) has no event: a page looks again every REFRESH_S whatever happens.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from app.auth.access import SettingsDep
from app.auth.rows import StoreName
from app.console.sessions import SignedInDep, known
from app.fleet.events_api import FeedDep
from app.fleet.listening import Wanted
from app.fleet.queries import NumberedEvent
from app.fleet.stream import FeedWatch, Listener
from app.kit.sse import CONTENT_TYPE, HEADERS
from app.settings import Settings

REFRESH: Final = b"event: refresh\ndata:\n\n"
BEGIN: Final = b"retry: 1000\nevent: refresh\ndata:\n\n"
KEEPALIVE: Final = b": keep-alive\n\n"
PACE_S: Final = 0.3
"""The shortest time between two looks of a page."""
PROGRESS: Final = "job.progress"
PROGRESS_PACE_S: Final = 4.0
"""The same where only numbers have moved."""
REFRESH_S: Final = 30.0
"""The longest time between two looks of a page."""
router = APIRouter(include_in_schema=False)


async def _listener(feed: FeedDep, signed_in: SignedInDep) -> AsyncIterator[Listener]:
    async with feed.listening(signed_in.caller) as listener:
        yield listener


@router.get("/console/events")
async def get_changes(
    request: Request,
    signed_in: SignedInDep,
    feed: FeedDep,
    settings: SettingsDep,
    listener: Annotated[Listener, Depends(_listener)],
    store: Annotated[list[StoreName], Query(max_length=1)] = [],  # noqa: B006
    job: Annotated[str, Query(max_length=40)] = "",
) -> Response:
    """Server-sent events of what the token may see; it begins with one, for what was missed before."""
    wanted = Wanted(signed_in.caller, store)
    frames = _told(request, feed, listener, wanted, f"jobs/{job}" if job else "", settings)
    return StreamingResponse(frames, media_type=CONTENT_TYPE, headers=HEADERS)


async def _told(
    request: Request, feed: FeedWatch, listener: Listener, wanted: Wanted, subject: str, settings: Settings
) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    ends_at, told_at, known_at = loop.time() + settings.stream_max_s, loop.time(), loop.time()
    place, pace_s = (await feed.reach()).last, REFRESH_S
    yield BEGIN
    while not listener.is_over and (now_s := loop.time()) < ends_at:
        listener.woken.clear()
        found, place = await _heard(feed, place)
        taken = [each for each in found if wanted.takes(each) and subject in ("", each.event.subject)]
        pace_s = min([pace_s, *(_pace_s(each) for each in taken)])
        if told_at + pace_s <= now_s:
            told_at, pace_s = now_s, REFRESH_S
            yield REFRESH
        # By the clock, and not where nothing wakes: others' events wake this page as well.
        if known_at + settings.sse_keepalive_s <= now_s:
            known_at = now_s
            if await run_in_threadpool(known, request) is None:
                break
            yield KEEPALIVE
        until_s = min(told_at + pace_s, known_at + settings.sse_keepalive_s, ends_at)
        await _rest(listener, until_s - loop.time())
    if await run_in_threadpool(known, request) is None:
        yield REFRESH  # the page asks, and is led to the form


def _pace_s(found: NumberedEvent) -> float:
    return PROGRESS_PACE_S if found.event.type == PROGRESS else PACE_S


async def _rest(listener: Listener, wait_s: float) -> None:
    """Wait until something has happened, or so long."""
    with suppress(TimeoutError):
        await asyncio.wait_for(listener.woken.wait(), wait_s)


async def _heard(feed: FeedWatch, place: int) -> tuple[list[NumberedEvent], int]:
    """All that has come after a place, and the place after it."""
    heard: list[NumberedEvent] = []
    while found := await feed.after(place):
        heard += found
        place = found[-1].number
    return heard, place
