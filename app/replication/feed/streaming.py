"""One reader of a change feed: a long poll, or a stream of events that ends with its time or its token."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from app.errors import ServiceError, problem_body
from app.kit.http.sse import named_event
from app.replication.feed.models import ChangeFeedBegin
from app.replication.feed.pages import Asked, Start, shown
from app.replication.feed.watch import ChangeFeeds, FeedReader
from spark.replication.feed.reading import FeedPage

READY: Final = "ready"
CHANGE: Final = "change"
REFUSED: Final = "refused"
PACE_S: Final = 0.05
"""A burst of changes is one page."""


async def next_page(
    feeds: ChangeFeeds, reader: FeedReader, asked: Asked, start: Start, *, wait_s: float
) -> FeedPage:
    """The next page that has a change; an empty one where none comes in time.

    Raises: ServiceError.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    while True:
        reader.woken.clear()
        page = await feeds.page(asked, start)
        left_s = deadline - loop.time()
        if page.records or left_s <= 0 or reader.is_over:
            return page
        start = page.end
        if not page.more:
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.woken.wait(), left_s)


async def told(
    feeds: ChangeFeeds,
    reader: FeedReader,
    asked: Asked,
    first: FeedPage,
    *,
    keepalive_s: float,
    longest_s: float,
) -> AsyncIterator[bytes]:
    """Yield what follows a page's beginning: each change once; an id is where the next connection goes on.

    A refusal in between is an event by itself, with the problem as its data; then the stream ends.
    """
    loop = asyncio.get_running_loop()
    ends_at, told_at = loop.time() + longest_s, loop.time()
    page = first
    text = page.begin.text()
    begin = ChangeFeedBegin(cursor=text).model_dump_json()
    yield b"retry: 1000\n" + named_event(text, READY, begin)
    while not reader.is_over:
        if page.records:
            yield _frames(page)
            feeds.told["SSE"] += len(page.records)
        if page.records or page.end != page.begin:
            told_at = loop.time()
            text = page.end.text()
        if not page.more:
            # The id alone is no event: what a filter leaves out is behind the next connection too.
            if not page.records and page.end != page.begin:
                yield f"id: {text}\n\n".encode()
            await asyncio.sleep(PACE_S)
            while not (reader.is_over or reader.woken.is_set()):
                if loop.time() >= ends_at:
                    return
                if told_at + keepalive_s <= loop.time():
                    told_at = loop.time()
                    yield f"id: {text}\n: keep-alive\n\n".encode()
                with suppress(TimeoutError):
                    await asyncio.wait_for(
                        reader.woken.wait(), max(0.0, min(told_at + keepalive_s, ends_at) - loop.time())
                    )
        if reader.is_over or loop.time() >= ends_at:
            return
        reader.woken.clear()
        try:
            page = await feeds.page(asked, page.end)
        except ServiceError as error:
            instance = f"/v1/stores/{asked.store.id}/changes/feed"
            yield named_event(text, REFUSED, json.dumps(problem_body(error, instance=instance)))
            return


def _frames(page: FeedPage) -> bytes:
    position, frames = page.begin, []
    for record in page.records:
        position = position.moved({record.rid: record.place})
        frames.append(named_event(position.text(), CHANGE, shown(record).model_dump_json()))
    return b"".join(frames)
