"""One stream of events: what a caller asks for and may see, from where, and for how long."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fastapi.sse import ServerSentEvent

from app.auth.service import Caller
from app.errors import InvalidHeader
from app.fleet.models import FleetEvent, StreamBegin
from app.fleet.queries import NumberedEvent
from app.fleet.stream import FeedWatch, Listener

READY = "ready"
RESET = "reset"
RETRY_MS = 1_000
DIGITS_MAX = 18


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a stream is narrowed to; empty means all that the caller may see."""

    caller: Caller
    stores: Sequence[str] = ()
    kinds: Sequence[str] = ()
    labels: Mapping[str, str] | None = None

    def takes(self, found: NumberedEvent) -> bool:
        """Whether an event is told."""
        event, caller = found.event, self.caller
        if event.store is None and caller.stores is not None and event.token_id != caller.token_id:
            return False
        if event.store is not None and caller.stores is not None and event.store not in caller.stores:
            return False
        if self.stores and event.store not in self.stores:
            return False
        if self.kinds and event.kind not in self.kinds:
            return False
        return all(found.labels.get(name) == value for name, value in (self.labels or {}).items())


def resume_point(last_event_id: str | None) -> int | None:
    """The number of Last-Event-ID; None: from now on.

    Raises: InvalidHeader.
    """
    if last_event_id is None or last_event_id == "":
        return None
    if not (last_event_id.isascii() and last_event_id.isdigit()) or len(last_event_id) > DIGITS_MAX:
        raise InvalidHeader("Last-Event-ID is the id of an event of this stream")
    return int(last_event_id)


async def told(
    watch: FeedWatch,
    listener: Listener,
    wanted: Wanted,
    *,
    after: int | None,
    keepalive_s: float,
    longest_s: float,
) -> AsyncIterator[ServerSentEvent]:
    """Yield the events after a number: none twice, none left out, until the stream's time is over.

    The first one says from where it begins: READY, or RESET where something in between is not kept any more.
    """
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + longest_s
    reach = await watch.reach()
    place = reach.last if after is None or not reach.holds(after) else after
    first = READY if after is None or reach.holds(after) else RESET
    yield ServerSentEvent(
        event=first, id=str(place), retry=RETRY_MS, raw_data=StreamBegin(number=place).model_dump_json()
    )
    told_at = loop.time()
    while not listener.is_over:
        listener.woken.clear()
        while not listener.is_over and (found := await watch.after(place)):
            for each in found:
                place = each.number
                if wanted.takes(each):
                    told_at = loop.time()
                    yield _frame(each)
        now_s = loop.time()
        if listener.is_over or now_s >= ends_at:
            return
        if told_at + keepalive_s <= now_s:
            # The id alone is no event; it is where the next connection goes on. By the clock, and not where
            # nothing wakes: what this stream leaves out wakes it as well.
            told_at = now_s
            yield ServerSentEvent(id=str(place), comment="keep-alive")
        with suppress(TimeoutError):
            await asyncio.wait_for(listener.woken.wait(), min(told_at + keepalive_s, ends_at) - loop.time())


def _frame(found: NumberedEvent) -> ServerSentEvent:
    event = found.event
    shown = FleetEvent(
        number=found.number,
        at=event.at,
        type=event.type,
        kind=event.kind,
        store=event.store,
        subject=event.subject,
        seq=event.seq,
        data=event.data,
    )
    return ServerSentEvent(event=event.type, id=str(found.number), raw_data=shown.model_dump_json())
