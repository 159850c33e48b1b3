"""`GET /v1/stores/{s}/slony-changes`: the changes of a node, SYNC by SYNC, for whoever keeps the position."""

from typing import Annotated, Any, Final

from fastapi import Depends, Header, Query
from starlette.responses import Response

from app.auth.access import DatabaseDep, SettingsDep, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import InvalidRequest
from app.events.api import slony_store
from app.events.feed.answer import FeedAnswer
from app.events.feed.forms import form_of
from app.events.feed.service import begin_feed, read_feed, read_first_copy, send_feed
from app.kit.http.routing import new_router
from app.kit.problems import problems
from app.stores.api import StoreId
from spark.events.feed.reading import Asked
from spark.events.feed.snapshot import TxidSnapshot
from spark.formats.changes.batch import ARROW_MEDIA_TYPE, NDJSON_MEDIA_TYPE
from spark.formats.slony import NODE_MAX, SEQNO_MAX

router = new_router(tags=["events"])
Reader = Annotated[Caller, Depends(requires(Scope.DATA_READ))]

UNITS_DEFAULT: Final = 100
UNITS_MAX: Final = 1_000
ROWS_DEFAULT: Final = 100_000
ROWS_MAX: Final = 10_000_000
SETS_MAX: Final = 100
SNAPSHOT: Final = r"^[0-9]{1,20}:[0-9]{1,20}:[0-9,]{0,10000}$"
_EXAMPLE: Final = (
    '{"kind":"START","origin":1,"seqno":5000000012,"snapshot":"2530:2530:"}\n'
    '{"seqno":5000000013,"kind":"INSERT","actionseq":71,"txid":2531,"set":1,"table_id":1,"schema":"public",'
    '"table":"account","values":{"id":"1","owner":"a"}}\n'
    '{"seqno":5000000013,"kind":"SYNC","detail":{"at":"2026-11-20T10:54:39+00:00","snapshot":"2532:2532:",'
    '"records":1}}\n'
)
_ANSWER: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The units behind the position",
        "content": {
            NDJSON_MEDIA_TYPE: {
                "schema": {"type": "string", "description": "A record on each line."},
                "example": _EXAMPLE,
            },
            ARROW_MEDIA_TYPE: {
                "schema": {"type": "string", "format": "binary", "description": "An Arrow IPC stream."},
                "example": "(Arrow IPC stream)",
            },
        },
    }
}


@router.get(
    "/v1/stores/{store_id}/slony-changes",
    response_class=Response,
    summary="Read a node's changes, SYNC by SYNC",
    operation_id="read_slony_changes",
    responses=problems(404, 409, 502) | _ANSWER,
)
def get_changes(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    settings: SettingsDep,
    accept: Annotated[str, Header()] = NDJSON_MEDIA_TYPE,
    after: Annotated[
        int | None,
        Query(ge=0, le=SEQNO_MAX, description="SYNC to begin behind; left out: the oldest that is kept."),
    ] = None,
    snapshot: Annotated[
        str | None,
        Query(pattern=SNAPSHOT, description="Of the SYNC `after`, as it was read; compared with the node's."),
    ] = None,
    copied: Annotated[
        str | None,
        Query(
            pattern=SNAPSHOT,
            description="Of the START of a first copy, until a SYNC has come: what the copy has is left out.",
        ),
    ] = None,
    set_id: Annotated[
        list[Annotated[int, Query(ge=0, le=NODE_MAX)]],
        Query(alias="set", max_length=SETS_MAX, description="Only tables and sequences of these sets."),
    ] = [],  # noqa: B006
    limit: Annotated[int, Query(ge=1, le=UNITS_MAX, description="At most so many SYNCs.")] = UNITS_DEFAULT,
    rows: Annotated[
        int, Query(ge=1, le=ROWS_MAX, description="No further SYNC begins once so many records were sent.")
    ] = ROWS_DEFAULT,
) -> Response:
    """What a subscriber would apply: the records of a unit in their order, ended by its SYNC.

    Apply a unit when its SYNC has come; its seqno is the next `after`. 409 NEEDS_TOTAL: what follows the
    position was cleaned away. Nothing is confirmed, nothing is written to the node.
    """
    store = slony_store(database, store_id, caller)
    base = None if copied is None else _snapshot(copied)
    if base is not None and after is None:
        raise _fault("query:copied", "goes with `after`: give the seqno of the copy's START")
    asked = Asked(0, after, snapshot, base, frozenset(set_id), units_max=limit, rows_max=rows)
    form = form_of(accept)
    pieces = read_feed(database, settings, store, asked, form)
    first = begin_feed(pieces)
    bodies = send_feed(first, pieces, form)
    return FeedAnswer(bodies, media_type=form.media_type, stalled_s=settings.stream_stalled_s)


@router.get(
    "/v1/stores/{store_id}/slony-copy",
    response_class=Response,
    summary="Copy the tables of a node's sets, to follow their changes from there",
    operation_id="read_slony_copy",
    responses=problems(404, 409, 502) | _ANSWER,
)
def get_copy(
    store_id: StoreId,
    caller: Reader,
    database: DatabaseDep,
    settings: SettingsDep,
    set_id: Annotated[
        list[Annotated[int, Query(ge=0, le=NODE_MAX)]],
        Query(alias="set", min_length=1, max_length=SETS_MAX, description="Whose tables and sequences."),
    ],
    accept: Annotated[str, Header()] = NDJSON_MEDIA_TYPE,
) -> Response:
    """A START, a COPY for each row, the sequences, and an END: all of one moment of the node.

    Then read the changes with `after` and `copied` of the START: nothing is missing, nothing comes twice.
    """
    store = slony_store(database, store_id, caller)
    form = form_of(accept)
    pieces = read_first_copy(database, settings, store, frozenset(set_id), form)
    first = begin_feed(pieces)
    bodies = send_feed(first, pieces, form)
    return FeedAnswer(bodies, media_type=form.media_type, stalled_s=settings.stream_stalled_s)


def _snapshot(text: str) -> TxidSnapshot:
    """Raises: InvalidRequest."""
    try:
        return TxidSnapshot.parse(text)
    except ValueError as error:
        raise _fault("query:copied", "no snapshot of PostgreSQL, such as 2530:2532:2531") from error


def _fault(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest("1 field(s) are not valid", errors=[{"pointer": pointer, "detail": detail}])
