"""`GET /v1/events`: what happens to jobs, backups, sessions, stores and what is set for them."""

from collections.abc import AsyncIterable, AsyncIterator
from typing import Annotated, Any, cast

from fastapi import Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from app.auth.access import SettingsDep, requires
from app.auth.rows import StoreName
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.fleet.listening import Wanted, resume_point, told
from app.fleet.models import FleetEvent, StreamBegin
from app.fleet.stream import FeedWatch, Listener
from app.kit.http.at_once import at_once
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.kit.values import Text
from app.stores.labels import parse_labels

router = new_router(tags=["fleet"])
Reader = Annotated[Caller, Depends(requires(Scope.JOBS_READ))]


def feed_of(request: Request) -> FeedWatch:
    """The feed of this application."""
    return cast(FeedWatch, request.app.state.feed)


FeedDep = Annotated[FeedWatch, Depends(at_once(feed_of))]


async def _wanted(
    caller: Reader,
    store: Annotated[list[StoreName], Query(max_length=100)] = [],  # noqa: B006
    kind: Annotated[
        list[Text],
        Query(
            max_length=20,
            description="Of jobs; BACKUP, REPLICATION_SESSION, STORE, PROTECTION, SCHEDULE, WINDOW.",
        ),
    ] = [],  # noqa: B006
    label: Annotated[
        list[Text], Query(max_length=20, description="NAME=VALUE of the store; all must match.")
    ] = [],  # noqa: B006
) -> Wanted:
    for name in store:
        caller.require_store(name)
    return Wanted(caller, store, kind, parse_labels(label))


WantedDep = Annotated[Wanted, Depends(_wanted)]


def _resumed(
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", description="The last id that was heard.")
    ] = None,
) -> int | None:
    return resume_point(last_event_id)


async def _listener(feed: FeedDep, wanted: WantedDep) -> AsyncIterator[Listener]:
    async with feed.listening(wanted.caller) as listener:
        yield listener


@router.get(
    "/v1/events",
    response_class=EventSourceResponse,
    summary="Follow all that happens",
    operation_id="follow_events",
    responses=problems(429),
)
async def get_events(
    feed: FeedDep,
    wanted: WantedDep,
    settings: SettingsDep,
    after: Annotated[int | None, Depends(_resumed)],
    listener: Annotated[Listener, Depends(_listener)],
) -> AsyncIterable[FleetEvent | StreamBegin]:
    """Server-sent events, in one order that every instance tells alike; a token sees those of its stores.

    The stream begins with `ready`, whose id is where it begins: now, or after Last-Event-ID. `reset` instead
    says that events in between are not kept any more (`lethe.retention.feed`): look at the overview again. It
    ends after a while, and when its token does; go on by Last-Event-ID, at any instance.
    """
    stream: AsyncIterator[ServerSentEvent] = told(
        feed,
        listener,
        wanted,
        after=after,
        keepalive_s=settings.sse_keepalive_s,
        longest_s=settings.stream_max_s,
    )
    async for event in stream:
        yield cast(Any, event)  # fastapi sends it as it is; the annotation describes its data
