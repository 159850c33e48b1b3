"""`/v1/stores/{s}/entries` and `GET /v1/stores/{s}/changes`: what a replica holds, and how it came there."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import Depends, Path, Query
from starlette.responses import JSONResponse, Response

from app.auth.access import DatabaseDep, SettingsDep, requires
from app.auth.scopes import Scope
from app.auth.service import Caller
from app.db import Database
from app.errors import InvalidPageToken, InvalidRequest, NotFound
from app.kit.conditional import IfNoneMatch, is_current
from app.kit.http.routing import new_router
from app.kit.pagination import PAGE_SIZE_DEFAULT, Page, PageSize, decode_token, encode_token
from app.kit.problems import problems
from app.replication.replica.models import ChangeRead, EntryRead, base64_text
from app.replication.replica.refusals import NoReplicaYet
from app.replication.replica.replicas import opened_replica, require_readable
from app.settings import Settings
from app.stores.api import StoreId, read_row
from app.stores.rows import Store
from spark.formats.arrow import pa
from spark.formats.csn import RID_MAX, RID_MIN, Csn
from spark.formats.replica import DATABASE_MAX_BYTES, KEY_MAX_BYTES
from spark.replication.replica.entries import get_entry, read_entries
from spark.replication.replica.history import read_history
from spark.replication.replica.layout import keep_filled
from spark.replication.replica.part_row import require_held
from spark.targets.connection import Connection

router = new_router(tags=["replication"])
Reader = Annotated[Caller, Depends(requires(Scope.DATA_READ))]

PAGE_MAX_BYTES: Final = 4_194_304
"""A page ends early where its values have so many bytes."""
_FIRST_ROWS: Final = 16
_DATABASE_MAX_CHARS: Final = 4 * (-(-DATABASE_MAX_BYTES // 3))
_TEXT_MAX_CHARS: Final = 4 * (-(-KEY_MAX_BYTES // 3))
_TOKEN_MAX_CHARS: Final = 4_200
"""A page token holds the last database and key, each twice in base64."""
_BASE64: Final = "^[A-Za-z0-9_+/=-]*$"
DatabaseQuery = Annotated[
    str, Query(max_length=_DATABASE_MAX_CHARS, pattern=_BASE64, description="Bytes in base64url.")
]
PrefixQuery = Annotated[
    str, Query(max_length=_TEXT_MAX_CHARS, pattern=_BASE64, description="Bytes in base64url.")
]
Base64Path = Annotated[str, Path(min_length=1, max_length=_TEXT_MAX_CHARS, description="Bytes in base64url.")]
KeyPageToken = Annotated[
    str,
    Query(max_length=_TOKEN_MAX_CHARS, pattern=_BASE64, description="`next_page_token` of the page before."),
]
Tombstones = Annotated[bool, Query(description="Show deleted keys too.")]
CsnQuery = Annotated[str | None, Query(pattern="^[0-9a-f]{20}$", description="Only records after this CSN.")]


class EntryNotFound(NotFound):
    """The key has no entry, or a tombstone that was not asked for."""


Row = dict[str, Any]
Key = list[Any]


@dataclass(frozen=True, slots=True)
class _Listing:
    """What a list reads.

    Args:
        read: at most so many rows after a key.
        key_of: what a page token keeps of a row.
        size_of: how many bytes a row's value has.
    """

    read: Callable[[Connection, Key | None, int], pa.RecordBatch]
    key_of: Callable[[Row], Key]
    size_of: Callable[[Row], int]

    def page(self, conn: Connection, after: Key | None, page_size: int) -> tuple[list[Row], bool]:
        """The rows of one page, of one moment, and whether more follow.

        Raises: ReplicaInitializing; TargetError, ReplicaMissing.
        """
        rows: list[Row] = []
        size = 0
        with conn.transaction(read_only=True):
            keep_filled(conn)
            require_readable(conn)
            wanted = min(_FIRST_ROWS, page_size)
            while True:
                found = self.read(conn, after, wanted).to_pylist()
                rows += found
                if len(found) < wanted:
                    return rows, False
                after = self.key_of(rows[-1])
                size += sum(self.size_of(row) for row in found)
                # Large values are read a few at a time: a page never holds much more than its bound.
                wanted = min(page_size - len(rows), (PAGE_MAX_BYTES - size) * len(rows) // max(size, 1))
                if wanted < 1:
                    return rows, self.read(conn, after, 1).num_rows > 0


@router.get(
    "/v1/stores/{store_id}/entries",
    response_model=Page[EntryRead],
    summary="List a replica's entries",
    operation_id="list_entries",
    responses=problems(404, 409, 502),
)
def get_entries(
    store_id: StoreId,
    caller: Reader,
    metadata: DatabaseDep,
    settings: SettingsDep,
    database: DatabaseQuery = "",
    prefix: PrefixQuery = "",
    tombstones: Tombstones = False,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: KeyPageToken = "",
) -> Page[EntryRead]:
    """In the order of database and key, byte by byte; `prefix`, with `database`: keys that begin so.

    Each page is one moment, and may be shorter than asked for where values are large. A replica whose total
    initialisation is under way is not shown: 409 REPLICA_INITIALIZING.
    """
    store = read_row(metadata, store_id, caller)
    wanted = bytes_in(database, "query:database", most=DATABASE_MAX_BYTES) if database else None
    begin = bytes_in(prefix, "query:prefix", most=KEY_MAX_BYTES) if prefix else None
    if begin is not None and wanted is None:
        raise query_fault("query:prefix", "a prefix is one of the keys of a database")
    filters = {"list": "entries", "store": store_id, "of": [database, prefix, tombstones]}

    def read(conn: Connection, after: Key | None, rows_max: int) -> pa.RecordBatch:
        start = None if after is None else (_token_bytes(after[0]), _token_bytes(after[1]))
        return read_entries(
            conn, after=start, rows_max=rows_max, database=wanted, prefix=begin, tombstones=tombstones
        )

    listing = _Listing(
        read=read,
        key_of=lambda row: [base64_text(row["database"]), base64_text(row["key"])],
        size_of=lambda row: len(row["value"] or b""),
    )
    after = decode_token(page_token, filters, types=[str, str])
    rows, more = _page(metadata, settings, store, listing, after, page_size)
    token = encode_token(listing.key_of(rows[-1]), filters) if more else ""
    items = [EntryRead(**row, rid=Csn(row["csn"]).rid) for row in rows]
    return Page(items=items, next_page_token=token)


@router.get(
    "/v1/stores/{store_id}/entries/{database}/{key}",
    response_model=EntryRead,
    summary="Get an entry",
    operation_id="get_entry",
    responses=problems(404, 409, 502) | {304: {"description": "Still the CSN of If-None-Match"}},
)
def get_one_entry(
    store_id: StoreId,
    database: Base64Path,
    key: Base64Path,
    caller: Reader,
    metadata: DatabaseDep,
    settings: SettingsDep,
    tombstones: Tombstones = False,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Database and key are named in base64url. The ETag is the CSN.

    A key that a PARTIAL replica does not hold: 409 REPLICA_PARTIAL, for it may have an entry elsewhere.
    """
    store = read_row(metadata, store_id, caller)
    database_bytes = bytes_in(database, "path:database", most=DATABASE_MAX_BYTES)
    key_bytes = bytes_in(key, "path:key", most=KEY_MAX_BYTES)
    entry = None
    with (
        suppress(NoReplicaYet),
        opened_replica(metadata, settings, store, purpose="read", create=False) as conn,
        conn.transaction(read_only=True),
    ):
        keep_filled(conn)
        require_held(require_readable(conn), database_bytes, key_bytes)
        entry = get_entry(conn, database_bytes, key_bytes)
    if entry is None or (entry.is_tombstone and not tombstones):
        raise EntryNotFound("there is no such entry")
    headers = {"ETag": f'"{entry.csn}"'}
    if is_current(if_none_match, entry.csn):
        return Response(status_code=304, headers=headers)
    found = EntryRead(
        database=database_bytes,
        key=key_bytes,
        value=entry.value,
        csn=entry.csn,
        rid=entry.csn.rid,
        is_tombstone=entry.is_tombstone,
    )
    return JSONResponse(found.model_dump(mode="json"), headers=headers)


@router.get(
    "/v1/stores/{store_id}/changes",
    response_model=Page[ChangeRead],
    summary="List a replica's changelog",
    operation_id="list_changes",
    responses=problems(404, 409, 502),
)
def get_changes(
    store_id: StoreId,
    caller: Reader,
    metadata: DatabaseDep,
    settings: SettingsDep,
    rid: Annotated[int | None, Query(ge=RID_MIN, le=RID_MAX, description="Only this replica's.")] = None,
    after: CsnQuery = None,
    page_size: PageSize = PAGE_SIZE_DEFAULT,
    page_token: KeyPageToken = "",
) -> Page[ChangeRead]:
    """The records that are there, in the order of RID and CSN; trimmed ones are gone, their entries are not.

    `after` begins behind a CSN, which need not be there.
    """
    store = read_row(metadata, store_id, caller)
    start = None if after is None else [Csn(after).rid, after]
    if start is not None and rid is not None and start[0] != rid:
        raise query_fault("query:after", f"a CSN of replica {start[0]}, where replica {rid} is asked for")
    filters = {"list": "changes", "store": store_id, "of": [rid, after]}
    listing = _Listing(
        read=lambda conn, key, rows_max: read_history(
            conn, rid=rid, after=None if key is None else (key[0], key[1]), rows_max=rows_max
        ),
        key_of=lambda row: [row["rid"], row["csn"]],
        size_of=lambda row: len(row["payload"] or b""),
    )
    start = decode_token(page_token, filters, types=[int, str]) or start
    rows, more = _page(metadata, settings, store, listing, start, page_size)
    token = encode_token(listing.key_of(rows[-1]), filters) if more else ""
    items = [ChangeRead(**row, logged_at=datetime.fromtimestamp(row.pop("logged_at_s"), UTC)) for row in rows]
    return Page(items=items, next_page_token=token)


def _page(
    metadata: Database,
    settings: Settings,
    store: Store,
    listing: _Listing,
    after: Key | None,
    page_size: int,
) -> tuple[list[Row], bool]:
    """A page of a replica; one that was never written to has no rows."""
    try:
        with opened_replica(metadata, settings, store, purpose="read", create=False) as conn:
            return listing.page(conn, after, page_size)
    except NoReplicaYet:
        return [], False


def bytes_in(text: str, pointer: str, *, most: int) -> bytes:
    """Bytes in base64url, with or without padding; standard base64 is understood too.

    Raises: InvalidRequest: no base64, or of another length.
    """
    plain = text.translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        found = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not 1 <= len(found) <= most:
        raise query_fault(pointer, f"1 to {most} bytes in base64url")
    return found


def query_fault(pointer: str, detail: str) -> InvalidRequest:
    """The problem of one parameter that is not valid."""
    return InvalidRequest("1 field(s) are not valid", errors=[{"pointer": pointer, "detail": detail}])


def _token_bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidPageToken("the page token was not given by this service") from error
