"""What a node's catalog holds of events and confirmations, as clients see it. Reads only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.errors import InvalidPageToken, InvalidRequest
from app.events.errors import EventNotFound
from app.events.models import (
    ConfirmationRead,
    ConfirmationState,
    ConfirmedBy,
    EventDetail,
    EventRead,
    MatrixRead,
)
from app.kit.durations import duration_of
from app.kit.pagination import Page, decode_token, make_page
from spark.events.confirmations import confirmers, read_matrix
from spark.events.events import read_event, select_events
from spark.events.records import Catalog, Confirmed, Event
from spark.formats.slony import NODE_MAX, SEQNO_MAX
from spark.targets.connection import Connection, target_now


@dataclass(frozen=True, slots=True)
class EventFilters:
    """Which events a list shows; empty sequences and None leave out nothing."""

    origins: Sequence[int]
    types: Sequence[str]
    from_seqno: int | None
    upto_seqno: int | None
    created_after: datetime | None
    created_before: datetime | None

    def check(self) -> None:
        """Refuse bounds that leave out everything.

        Raises: InvalidRequest.
        """
        if self.from_seqno is not None and self.upto_seqno is not None and self.from_seqno > self.upto_seqno:
            raise _fault("query:upto_seqno", "less than from_seqno")
        after, before = self.created_after, self.created_before
        if after is not None and before is not None and after >= before:
            raise _fault("query:created_before", "not later than created_after")

    def named(self, store_id: str) -> dict[str, Any]:
        """What a page token is bound to."""
        return {
            "list": "events",
            "store": store_id,
            "origins": sorted(set(self.origins)),
            "types": sorted(set(self.types)),
            "seqnos": [self.from_seqno, self.upto_seqno],
            "created": [self.created_after, self.created_before],
        }


def start_of(page_token: str, filters: EventFilters, store_id: str) -> tuple[int, int] | None:
    """The event that a page begins behind; None: the first page.

    Raises: InvalidPageToken.
    """
    key = decode_token(page_token, filters.named(store_id), types=[int, int])
    if key is None:
        return None
    origin, seqno = key
    if not (0 <= origin <= NODE_MAX and 0 <= seqno <= SEQNO_MAX):
        raise InvalidPageToken("the page token was not given by this service")
    return origin, seqno


def list_events(
    conn: Connection,
    catalog: Catalog,
    filters: EventFilters,
    *,
    store_id: str,
    after: tuple[int, int] | None,
    page_size: int,
) -> Page[EventRead]:
    """A page of events in the order of origin and seqno."""
    rows = select_events(
        conn,
        catalog,
        origins=list(filters.origins),
        types=list(filters.types),
        from_seqno=filters.from_seqno,
        upto_seqno=filters.upto_seqno,
        created_after=filters.created_after,
        created_before=filters.created_before,
        after=after,
        limit=page_size + 1,
    )
    return make_page(
        rows,
        page_size=page_size,
        filters=filters.named(store_id),
        key=lambda event: [event.origin, event.seqno],
        item=event_read,
    )


def get_event(conn: Connection, catalog: Catalog, origin: int, seqno: int) -> EventDetail:
    """One event, and who has confirmed it.

    Raises: EventNotFound.
    """
    event = read_event(conn, catalog, origin, seqno)
    if event is None:
        raise EventNotFound("this node holds no such event: it was cleaned away, or has not arrived")
    found = confirmers(conn, catalog, origin, seqno)
    return EventDetail(
        **event_read(event).model_dump(),
        confirmed_by=[
            ConfirmedBy(receiver=each.receiver, seqno=each.seqno, at=each.timestamp)
            for each in found.confirmed_by
            if each.seqno is not None
        ],
        outstanding=list(found.outstanding),
        is_confirmed_by_all=not found.outstanding,
    )


def get_matrix(
    conn: Connection, catalog: Catalog, *, seen: Callable[[Sequence[Confirmed]], None] = lambda _rows: None
) -> MatrixRead:
    """Every pair of origin and receiver, of one moment.

    Args:
        seen: told the rows after the node's transaction.
    """
    active = set(catalog.active)
    with conn.transaction(read_only=True):
        as_of = target_now(conn)
        rows = read_matrix(conn, catalog)
    seen(rows)
    return MatrixRead(
        local_node=catalog.local_node,
        as_of=as_of,
        items=[confirmation_read(row, is_active=row.receiver in active) for row in rows],
    )


def event_read(event: Event) -> EventRead:
    """An event as clients see it."""
    return EventRead(
        origin=event.origin,
        seqno=event.seqno,
        type=event.type,
        created_at=event.timestamp,
        snapshot=event.snapshot,
        data=list(event.data),
    )


def confirmation_read(row: Confirmed, *, is_active: bool) -> ConfirmationRead:
    """A pair of origin and receiver as clients see it."""
    state = ConfirmationState.CURRENT
    if row.seqno is None:
        state = ConfirmationState.NEVER_CONFIRMED
    elif row.lag_events:
        state = ConfirmationState.BEHIND
    return ConfirmationRead(
        origin=row.origin,
        receiver=row.receiver,
        receiver_is_active=is_active,
        state=state,
        confirmed_seqno=row.seqno,
        confirmed_at=row.timestamp,
        last_seqno=row.last_seqno,
        lag_events=row.lag_events,
        lag=None if row.lag is None else duration_of(row.lag.total_seconds()),
    )


def _fault(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest("1 field(s) are not valid", errors=[{"pointer": pointer, "detail": detail}])
