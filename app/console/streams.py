"""What open pages hear: that something has changed, from the one feed of events.

All windows of a browser hear by one stream, each of its topic: everything, a store, or a job. An event of it
names the topic and carries no data: the page asks for its live part again, with its own rights. A burst of
events is one. What comes with time alone (a check that grows old, a wait that grows long, an instance that
falls silent) has no event: a page looks again every REFRESH_S whatever happens.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Query, Request
from pydantic import StringConstraints
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from app.auth.access import SettingsDep
from app.console.sessions import SignedInDep, known
from app.fleet.events_api import FeedDep
from app.fleet.listening import Wanted
from app.fleet.queries import NumberedEvent
from app.fleet.stream import FeedWatch, Listener
from app.kit.http.routing import new_router
from app.kit.http.sse import CONTENT_TYPE, HEADERS
from app.settings import Settings

ALL: Final = "all"
OF_STORE: Final = "stores/"
EVERYBODY: Final = "*"
"""In the place of a topic: every window of the stream."""
REFRESH: Final = "event: refresh\ndata: {}\n\n"
BEGIN: Final = f"retry: 1000\n{REFRESH.format(EVERYBODY)}".encode()
END: Final = REFRESH.format(EVERYBODY).encode()
KEEPALIVE: Final = b": keep-alive\n\n"
PACE_S: Final = 0.3
"""The shortest time between two looks of a page."""
PROGRESS: Final = "job.progress"
PROGRESS_PACE_S: Final = 4.0
"""The same where only numbers have moved."""
REFRESH_S: Final = 30.0
"""The longest time between two looks of a page."""
TOPICS_MAX: Final = 20
"""Pages tell it to hearing.js: a browser with more asks for everything."""
TopicName = Annotated[
    str, StringConstraints(pattern=rf"^({ALL}|{OF_STORE}[a-z][a-z0-9-]{{0,62}}|jobs/[0-9a-z_]{{1,40}})$")
]
router = new_router(include_in_schema=False)


@dataclass(slots=True)
class Topic:
    """What some windows of a browser show, and when they look next.

    Args:
        name: ALL, `stores/ID` or `jobs/ID`.
        told_at: by the loop's clock.
        pace_s: after this they look again.
    """

    name: str
    told_at: float
    pace_s: float

    def takes(self, found: NumberedEvent) -> bool:
        """Whether an event changes what is shown."""
        if self.name.startswith(OF_STORE):
            return found.event.store == self.name.removeprefix(OF_STORE)
        return self.name in (ALL, found.event.subject)

    def hear(self, events: Sequence[NumberedEvent]) -> None:
        """Look sooner for what has happened."""
        self.pace_s = min([self.pace_s, *(_pace_s(each) for each in events if self.takes(each))])

    def is_due(self, now_s: float) -> bool:
        """Whether it is told now; then the next look is REFRESH_S away."""
        if self.told_at + self.pace_s > now_s:
            return False
        self.told_at, self.pace_s = now_s, REFRESH_S
        return True


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
    topic: Annotated[list[TopicName], Query(max_length=TOPICS_MAX)] = [ALL],  # noqa: B006
) -> Response:
    """Server-sent events of what the token may see; it begins with one, for what was missed before."""
    frames = _told(request, feed, listener, Wanted(signed_in.caller), topic, settings)
    return StreamingResponse(frames, media_type=CONTENT_TYPE, headers=HEADERS)


async def _told(
    request: Request,
    feed: FeedWatch,
    listener: Listener,
    wanted: Wanted,
    names: Sequence[str],
    settings: Settings,
) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    begun_at = known_at = loop.time()
    ends_at = begun_at + settings.stream_max_s
    topics = [Topic(name, begun_at, REFRESH_S) for name in dict.fromkeys(names)]
    place = (await feed.reach()).last
    yield BEGIN
    while not listener.is_over and (now_s := loop.time()) < ends_at:
        listener.woken.clear()
        found, place = await _heard(feed, place)
        seen = [each for each in found if wanted.takes(each)]
        for topic in topics:
            topic.hear(seen)
            if topic.is_due(now_s):
                yield REFRESH.format(topic.name).encode()
        # By the clock, and not where nothing wakes: others' events wake this stream as well.
        if known_at + settings.sse_keepalive_s <= now_s:
            known_at = now_s
            if await run_in_threadpool(known, request) is None:
                break
            yield KEEPALIVE
        next_look = min(topic.told_at + topic.pace_s for topic in topics)
        until_s = min(next_look, known_at + settings.sse_keepalive_s, ends_at)
        await _rest(listener, until_s - loop.time())
    if await run_in_threadpool(known, request) is None:
        yield END  # the pages ask, and are led to the form


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
