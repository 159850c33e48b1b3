"""Streams go by the clock: a page looks again without any event, and others' events keep nothing from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from app.auth.scopes import Scope
from app.auth.service import Caller
from app.console import streams
from app.feed.rows import FeedEvent
from app.fleet.listening import Wanted, told
from app.fleet.queries import NumberedEvent, Reach
from app.fleet.stream import Listener

WHO = Caller("tok_1", "a", frozenset({Scope.JOBS_READ}), None)
KEEPALIVE_S = 0.2
BUSY_S = 0.02
MINE = b"event: refresh\ndata: stores/mine\n\n"


class BusyFeed:
    """A feed in which something happens every BUSY_S, at a store that this page does not show."""

    def __init__(self, clock: Any) -> None:
        self.last, self.clock = 0, clock

    async def reach(self) -> Reach:
        return Reach(0, self.last)

    async def after(self, number: int) -> list[NumberedEvent]:
        return [
            NumberedEvent(each, event_of("other", self.clock), {})
            for each in range(number + 1, self.last + 1)
        ]

    async def happen(self, listener: Listener) -> None:
        while True:
            await asyncio.sleep(BUSY_S)
            self.last += 1
            listener.woken.set()


def event_of(store: str, clock: Any) -> FeedEvent:
    fields = {"id": "fev_1", "type": "job.state", "kind": "PURGE", "subject": "jobs/job_1", "seq": 1}
    return FeedEvent(store=store, at=clock.now(), **fields)


async def first_of(stream: AsyncIterator[Any], is_it: Callable[[Any], bool]) -> Any:
    async for each in stream:
        if is_it(each):
            return each
    return None


def page_of(feed: BusyFeed, listener: Listener) -> AsyncIterator[bytes]:
    """What a page that shows the store `mine` hears."""
    settings: Any = SimpleNamespace(stream_max_s=60.0, sse_keepalive_s=KEEPALIVE_S)
    request: Any = None
    watch: Any = feed
    return streams._told(request, watch, listener, Wanted(WHO), ["stores/mine"], settings)


@pytest.fixture
def signed_in(monkeypatch: pytest.MonkeyPatch) -> list[object | None]:
    """Whether the page's session still lives, as its one element."""
    found: list[object | None] = [object()]
    monkeypatch.setattr(streams, "known", lambda _request: found[0])
    return found


def test_page_looks_again_though_nothing_has_happened(
    signed_in: list[object | None], monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    # A target that dies on a quiet night has no job: the page stood at "Nothing" and called itself live.
    monkeypatch.setattr(streams, "REFRESH_S", 0.1)

    async def listen() -> bytes | None:
        page = page_of(BusyFeed(clock), Listener(WHO))
        assert await anext(page) == streams.BEGIN
        return await asyncio.wait_for(first_of(page, lambda each: each == MINE), 5)

    assert asyncio.run(listen()) == MINE


def test_windows_of_one_stream_hear_each_of_their_own(signed_in: list[object | None], clock: Any) -> None:
    async def listen() -> list[bytes]:
        feed, listener = BusyFeed(clock), Listener(WHO)
        watch: Any = feed
        settings: Any = SimpleNamespace(stream_max_s=1.0, sse_keepalive_s=60.0)
        request: Any = None
        names = ["stores/mine", "stores/other", "jobs/job_1", "jobs/job_2", "all", "all"]
        stream = streams._told(request, watch, listener, Wanted(WHO), names, settings)
        assert await anext(stream) == streams.BEGIN
        feed.last += 1
        listener.woken.set()
        return [each async for each in stream]

    told = [each.decode().partition("data: ")[2].strip() for each in asyncio.run(listen())]
    assert told == ["stores/other", "jobs/job_1", "all"]


@pytest.mark.parametrize("given", ["stores/Other", "jobs/", "backups/1", "stores/a\nevent: x", ""])
def test_topic_is_everything_a_store_or_a_job(given: str) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(streams.TopicName).validate_python(given)


def test_page_that_others_events_wake_hears_that_it_is_alive_and_when_its_session_ends(
    signed_in: list[object | None], clock: Any
) -> None:
    async def listen() -> list[bytes]:
        feed, listener = BusyFeed(clock), Listener(WHO)
        busy = asyncio.create_task(feed.happen(listener))
        page = page_of(feed, listener)
        await anext(page)
        heard = [await asyncio.wait_for(anext(page), 5)]
        signed_in[0] = None
        heard += [each async for each in page]
        busy.cancel()
        return heard

    assert asyncio.run(asyncio.wait_for(listen(), 10)) == [streams.KEEPALIVE, streams.END]


def test_id_of_a_stream_that_leaves_all_out_moves_on(clock: Any) -> None:
    # Who comes again with its first id reads all that has happened since, or is told of a reset.
    async def listen() -> int:
        feed, listener = BusyFeed(clock), Listener(WHO)
        watch: Any = feed
        busy = asyncio.create_task(feed.happen(listener))
        stream = told(
            watch, listener, Wanted(WHO, ["mine"]), after=0, keepalive_s=KEEPALIVE_S, longest_s=60.0
        )
        await anext(stream)
        frame = await asyncio.wait_for(anext(stream), 5)
        busy.cancel()
        assert frame.raw_data is None
        return int(frame.id or 0)

    assert asyncio.run(listen()) >= KEEPALIVE_S / BUSY_S / 2
