"""What an open page hears: that something has changed, from the one feed of events.

An event of this stream carries no data: the page asks for its live part again, with its own rights. A burst
of events is one.
"""

import asyncio
import math
from collections.abc import AsyncIterator
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
    ends_at, told_at = loop.time() + settings.stream_max_s, loop.time()
    place, pace_s = (await feed.reach()).last, math.inf
    yield BEGIN
    while not listener.is_over and loop.time() < ends_at:
        listener.woken.clear()
        found, place = await _heard(feed, place)
        taken = [each for each in found if wanted.takes(each) and subject in ("", each.event.subject)]
        pace_s = min([pace_s, *(_pace_s(each) for each in taken)])
        wait_s = told_at + pace_s - loop.time()
        if wait_s <= 0:
            told_at, pace_s = loop.time(), math.inf
            yield REFRESH
        elif not await _is_woken(listener, min(wait_s, settings.sse_keepalive_s)) and pace_s == math.inf:
            if await run_in_threadpool(known, request) is None:
                break
            yield KEEPALIVE
    if await run_in_threadpool(known, request) is None:
        yield REFRESH  # the page asks, and is led to the form


def _pace_s(found: NumberedEvent) -> float:
    return PROGRESS_PACE_S if found.event.type == PROGRESS else PACE_S


async def _is_woken(listener: Listener, wait_s: float) -> bool:
    try:
        await asyncio.wait_for(listener.woken.wait(), wait_s)
    except TimeoutError:
        return False
    return True


async def _heard(feed: FeedWatch, place: int) -> tuple[list[NumberedEvent], int]:
    """All that has come after a place, and the place after it."""
    heard: list[NumberedEvent] = []
    while found := await feed.after(place):
        heard += found
        place = found[-1].number
    return heard, place
