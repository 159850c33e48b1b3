"""`.../entries/{database}/{key}/history` and `.../changes/overwritten`: what became of changes."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import Depends, Query

from app.auth.access import ClockDep, DatabaseDep, SettingsDep, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.errors import InvalidPageToken
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, PageToken, decode_token, encode_token
from app.kit.problems import problems
from app.kit.values import Instant
from app.replication.feed.models import KeyChangeRead, KeyHistoryRead, OverwrittenRead
from app.replication.feed.pages import PAGE_MAX_BYTES
from app.replication.replica.entries_api import Base64Path, DatabaseQuery, bytes_in
from app.replication.replica.refusals import NoReplicaYet, ReplicaInitializing
from app.replication.replica.replicas import opened_replica
from app.stores.api import StoreId, read_row
from spark.formats.csn import TIMESTAMP_MAX, Csn
from spark.formats.replica import DATABASE_MAX_BYTES, KEY_MAX_BYTES
from spark.replication.feed.key_history import KeyChange, KeyHistory, read_key_history
from spark.replication.feed.overwritten import Overwritten, OverwrittenPage, Verdict, read_overwritten

router = new_router(tags=["replication"])
Reader = Annotated[Caller, Depends(requires(Scope.DATA_READ))]
SINCE_DEFAULT: Final = timedelta(days=1)


@router.get(
    "/v1/stores/{store_id}/entries/{database}/{key}/history",
    response_model=KeyHistoryRead,
    summary="Get a key's history",
    operation_id="get_entry_history",
    responses=problems(404, 409, 502),
)
def get_history(
    store_id: StoreId,
    database: Base64Path,
    key: Base64Path,
    caller: Reader,
    metadata: DatabaseDep,
    settings: SettingsDep,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> KeyHistoryRead:
    """The changes of a key that the changelog holds, of all replica ids, the greatest CSN first.

    The changelog has no index by key: each page reads all of it. `purged` says up to where changes have left
    it: older ones of the key may have been there. A key without changes has an empty page; one that a PARTIAL
    replica does not hold is refused: 409 REPLICA_PARTIAL.
    """
    store = read_row(metadata, store_id, caller)
    database_bytes = bytes_in(database, "path:database", most=DATABASE_MAX_BYTES)
    key_bytes = bytes_in(key, "path:key", most=KEY_MAX_BYTES)
    filters = {"list": "history", "store": store_id, "of": [database, key]}
    before = _csn_in(page_token, filters)
    try:
        with opened_replica(metadata, settings, store, purpose="read", create=False) as conn:
            found = read_key_history(
                conn,
                database_bytes,
                key_bytes,
                before=before,
                rows_max=page_size,
                bytes_max=PAGE_MAX_BYTES,
            )
    except NoReplicaYet:
        found = KeyHistory((), False, {})
    _require_whole(found)
    return KeyHistoryRead(
        items=[_shown(change) for change in found.changes],
        next_page_token=encode_token([found.changes[-1].csn], filters) if found.more else "",
        purged={str(rid): str(csn) for rid, csn in sorted(found.purged.items())},
    )


@router.get(
    "/v1/stores/{store_id}/changes/overwritten",
    response_model=Page[OverwrittenRead],
    summary="List overwritten changes",
    operation_id="list_overwritten_changes",
    responses=problems(404, 409, 502),
)
def get_overwritten(
    store_id: StoreId,
    caller: Reader,
    metadata: DatabaseDep,
    settings: SettingsDep,
    clock: ClockDep,
    since: Annotated[
        Instant | None, Query(description="Losers of then and later, by their CSN; default: of the last day.")
    ] = None,
    verdict: Annotated[
        list[Verdict], Query(max_length=3, description="Default: CONCURRENT and UNCERTAIN.")
    ] = [],  # noqa: B006
    database: DatabaseQuery = "",
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: PageToken = "",
) -> Page[OverwrittenRead]:
    """Changes that lost against the next greater CSN of their key, where another replica id made that.

    CONCURRENT: the loser came here later than the winner, so the winner's replica did not have it. SEEN: the
    winner was made here, and the loser was here before. UNCERTAIN: the changelog does not tell. Losers that
    have left the changelog are not listed.
    """
    store = read_row(metadata, store_id, caller)
    wanted = sorted(set(verdict)) or [Verdict.CONCURRENT, Verdict.UNCERTAIN]
    only = bytes_in(database, "query:database", most=DATABASE_MAX_BYTES) if database else None
    filters = {"list": "overwritten", "store": store_id, "of": [since, wanted, database]}
    start = _csn_in(page_token, filters) or _below(since or clock.now() - SINCE_DEFAULT)
    try:
        with opened_replica(metadata, settings, store, purpose="read", create=False) as conn:
            found = read_overwritten(conn, after=start, verdicts=wanted, database=only, rows_max=page_size)
    except NoReplicaYet:
        found = OverwrittenPage((), False)
    _require_whole(found)
    token = encode_token([found.found[-1].loser], filters) if found.more else ""
    return Page(items=[_lost(each) for each in found.found], next_page_token=token)


def _csn_in(page_token: str, filters: Mapping[str, Any]) -> Csn | None:
    """The CSN that a page ended with; None: the first page.

    Raises: InvalidPageToken.
    """
    found = decode_token(page_token, filters, types=[str])
    try:
        return None if found is None else Csn(found[0])
    except ValueError as error:
        raise InvalidPageToken("the page token was not given by this service") from error


def _below(at: datetime) -> str:
    """What compares below every CSN of a second and of those after it."""
    return f"{min(max(int(at.timestamp()), 0), TIMESTAMP_MAX):08x}"


def _require_whole(found: KeyHistory | OverwrittenPage) -> None:
    if found.is_initializing:
        raise ReplicaInitializing("a total initialisation is under way: what is there is not complete")


def _time(at_s: int) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def _shown(change: KeyChange) -> KeyChangeRead:
    return KeyChangeRead(
        rid=change.csn.rid,
        csn=change.csn,
        payload=change.payload,
        logged_at=_time(change.logged_at_s),
        outcome=change.outcome,
        overwritten_by=change.overwritten_by,
        overwritten_by_rid=None if change.overwritten_by is None else change.overwritten_by.rid,
    )


def _lost(found: Overwritten) -> OverwrittenRead:
    winner_s = found.winner_logged_at_s
    return OverwrittenRead(
        database=found.database,
        key=found.key,
        verdict=found.verdict,
        csn=found.loser,
        rid=found.loser.rid,
        logged_at=_time(found.loser_logged_at_s),
        overwritten_by=found.winner,
        overwritten_by_rid=Csn(found.winner).rid,
        overwritten_by_logged_at=None if winner_s is None else _time(winner_s),
    )
