"""`GET /v1/stores/{s}/changes/feed`: all changes of a replica behind one cursor, as they come."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any, Final, cast

from fastapi import Depends, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response, StreamingResponse

from app.auth.access import DatabaseDep, SettingsDep, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.kit.http.at_once import at_once
from app.kit.http.routing import new_router
from app.kit.http.sse import CONTENT_TYPE, HEADERS
from app.kit.prefer import PreferHeader, wait_seconds
from app.kit.problems import problems
from app.replication.feed.models import ChangeFeedPage
from app.replication.feed.pages import STREAM_MAX_BYTES, Asked, encode_records, shown, start_of
from app.replication.feed.streaming import next_page, told
from app.replication.feed.watch import ChangeFeeds, FeedReader
from app.replication.replica.entries_api import DatabaseQuery, PrefixQuery, bytes_in, query_fault
from app.stores.api import StoreId, read_row
from app.stores.rows import StoreKind
from app.stores.service import require_kind
from spark.formats.changes.batch import ARROW_MEDIA_TYPE
from spark.formats.replica import DATABASE_MAX_BYTES, KEY_MAX_BYTES
from spark.replication.feed.position import TEXT_MAX_CHARS
from spark.replication.feed.reading import FeedPage, Keys, Starting

router = new_router(tags=["replication"])
Reader = Annotated[Caller, Depends(requires(Scope.DATA_READ))]

ROWS_MAX: Final = 5_000
CURSOR_HEADER: Final = "Lethe-Cursor"
MORE_HEADER: Final = "Lethe-More"
_BASE64URL: Final = "^[A-Za-z0-9_-]*$"
_ANSWER: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "A page, or a stream",
        "content": {
            CONTENT_TYPE: {"schema": {"type": "string"}},
            ARROW_MEDIA_TYPE: {
                "schema": {
                    "type": "string",
                    "format": "binary",
                    "description": "An Arrow IPC stream: the fields of a change, `logged_at_s` in seconds.",
                }
            },
        },
        "headers": {
            CURSOR_HEADER: {"schema": {"type": "string"}, "description": "Of Arrow: the next cursor."},
            MORE_HEADER: {"schema": {"type": "boolean"}, "description": "Of Arrow: more was there already."},
        },
    }
}


def feeds_of(request: Request) -> ChangeFeeds:
    """The change feeds of this application."""
    return cast(ChangeFeeds, request.app.state.change_feeds)


FeedsDep = Annotated[ChangeFeeds, Depends(at_once(feeds_of))]


def _form_of(accept: str) -> str:
    if CONTENT_TYPE in accept:
        return "SSE"
    return "ARROW" if ARROW_MEDIA_TYPE in accept else "JSON"


async def _asked(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    only_database: Annotated[DatabaseQuery, Query(alias="database")] = "",
    prefix: PrefixQuery = "",
    page_size: Annotated[
        int, Query(ge=1, le=ROWS_MAX, description="Changes of one page; a stream reads by pages too.")
    ] = 500,
) -> Asked:
    keys = None
    if prefix and not only_database:
        raise query_fault("query:prefix", "a prefix is one of the keys of a database")
    if only_database:
        keys = Keys(
            bytes_in(only_database, "query:database", most=DATABASE_MAX_BYTES),
            bytes_in(prefix, "query:prefix", most=KEY_MAX_BYTES) if prefix else b"",
        )
    store = await run_in_threadpool(read_row, database, store_id, caller)
    require_kind(store, StoreKind.REPLICA)
    return Asked(store, keys, page_size)


AskedDep = Annotated[Asked, Depends(_asked)]


async def _reader(
    asked: AskedDep,
    caller: Reader,
    feeds: FeedsDep,
    accept: Annotated[str, Header()] = "application/json",
) -> AsyncIterator[FeedReader]:
    async with feeds.reading(caller, asked.store.id, _form_of(accept)) as reader:
        yield reader


@router.get(
    "/v1/stores/{store_id}/changes/feed",
    response_model=ChangeFeedPage,
    summary="Follow a replica's changes",
    operation_id="follow_changes",
    responses=problems(404, 409, 410, 429, 502) | _ANSWER,
)
async def get_feed(
    asked: AskedDep,
    feeds: FeedsDep,
    reader: Annotated[FeedReader, Depends(_reader)],
    settings: SettingsDep,
    cursor: Annotated[
        str,
        Query(max_length=TEXT_MAX_CHARS, pattern=_BASE64URL, description="Of the page or event before."),
    ] = "",
    starting: Annotated[
        Starting,
        Query(
            description="Without a cursor: all that the changelog holds, its last `page_size` records, or"
            " what comes now."
        ),
    ] = Starting.EARLIEST,
    last_event_id: Annotated[
        str | None,
        Header(alias="Last-Event-ID", max_length=TEXT_MAX_CHARS, description="A cursor too; it goes first."),
    ] = None,
    prefer: PreferHeader = None,
) -> Response:
    """What follows the cursor: of each replica id in the order of its CSNs, each change once, none left out.

    A JSON page; with `Accept: application/vnd.apache.arrow.stream` an Arrow page whose cursor is in
    `Lethe-Cursor`; with `text/event-stream` a stream whose ids are cursors. `Prefer: wait=N` waits for the
    first change of a page. A cursor is good at every replica of the topology, and refused where what follows
    it is not all here: 410 CURSOR_TRIMMED, CURSOR_PARTED, CURSOR_GENERATION, 409 CURSOR_AHEAD.
    """
    if last_event_id:
        start = start_of(last_event_id, starting, pointer="header:Last-Event-ID")
    else:
        start = start_of(cursor, starting, pointer="query:cursor")
    if reader.form == "SSE":
        asked = replace(asked, bytes_max=STREAM_MAX_BYTES)
        frames = told(
            feeds,
            reader,
            asked,
            await feeds.page(asked, start),
            keepalive_s=settings.sse_keepalive_s,
            longest_s=settings.stream_max_s,
        )
        return StreamingResponse(frames, media_type=CONTENT_TYPE, headers=HEADERS)
    wait_s = wait_seconds(prefer, default_s=0, max_s=settings.wait_max_s)
    page = await next_page(feeds, reader, asked, start, wait_s=wait_s)
    feeds.told[reader.form] += len(page.records)
    return _answer(page, reader.form)


def _answer(page: FeedPage, form: str) -> Response:
    cursor = page.end.text()
    if form == "ARROW":
        headers = {CURSOR_HEADER: cursor, MORE_HEADER: str(page.more).lower(), "Cache-Control": "no-store"}
        return Response(encode_records(page.records), media_type=ARROW_MEDIA_TYPE, headers=headers)
    found = ChangeFeedPage(items=[shown(record) for record in page.records], cursor=cursor, more=page.more)
    return JSONResponse(found.model_dump(mode="json"), headers={"Cache-Control": "no-store"})
