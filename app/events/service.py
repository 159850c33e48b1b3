"""Rules of confirmations: who may be said to have confirmed what.

A confirmation that is not true makes the cluster remove events and truncate log rows that its receiver has
never seen: so the receiver's own catalog is asked, unless an admin takes it upon himself.

Invariants:
- checked in this order: nodes, receiver is not the origin, nothing of the future, the receiver's own catalog;
- what is confirmed already as far or further is not asked for again, and changes nothing;
- `force` leaves out the receiver's own catalog, nothing else.
Source: slony-events-confirmations, 4.1.2; design.md, Events.
"""

from dataclasses import dataclass

from app.db import Database
from app.events.errors import (
    NotProcessedByReceiver,
    ReceiverIsOrigin,
    ReceiverNotAsked,
    SeqnoOfTheFuture,
    UnknownNode,
)
from app.events.models import ConfirmRead, ConfirmRequest
from app.events.nodes import ClusterViews, ask_cluster, opened_node, refuse_copy
from app.settings import Settings
from app.stores.errors import service_error
from app.stores.rows import Store
from spark.events.confirmations import confirm, confirmed_upto
from spark.events.events import last_seqno, read_event
from spark.events.records import Catalog, Event
from spark.targets.connection import Connection
from spark.targets.errors import TargetError

PURPOSE = "confirm"


@dataclass(frozen=True, slots=True)
class _Held:
    """What a receiver's own catalog says: the event, and how far it has confirmed its origin."""

    event: Event | None
    upto: int | None


def check_confirmation(database: Database, settings: Settings, store: Store, asked: ConfirmRequest) -> None:
    """Return when a receiver may be said to have confirmed an event; nothing is written.

    Raises: ServiceError: UnknownNode, ReceiverIsOrigin, SeqnoOfTheFuture, NotProcessedByReceiver,
        ReceiverNotAsked; the target cannot be asked.
    """
    with opened_node(store, settings, database, purpose=PURPOSE) as (conn, catalog):
        require_node(catalog, asked.origin, pointer="/origin")
        require_node(catalog, asked.receiver, pointer="/receiver")
        _require_another(asked)
        last = last_seqno(conn, catalog, asked.origin)
        if last is None or asked.seqno > last:
            raise SeqnoOfTheFuture(asked.origin, asked.seqno, last=last)
        here = _look(conn, catalog, asked)
    if asked.force or (here.upto is not None and here.upto >= asked.seqno):
        return
    if asked.receiver == catalog.local_node:
        _require_processed(here, here.event, asked)
        return
    _require_processed(_ask_receiver(database, settings, store, asked), here.event, asked)


def confirm_at(database: Database, settings: Settings, store: Store, asked: ConfirmRequest) -> ConfirmRead:
    """Write a confirmation that was checked; monotone, and repeated it changes nothing.

    Raises: ServiceError: the target cannot be asked, or refuses.
    """
    with opened_node(store, settings, database, purpose=PURPOSE, read_only=False) as (conn, catalog):
        refuse_copy(database, settings, store, conn, catalog)
        found = confirm(conn, catalog, asked.origin, asked.receiver, asked.seqno)
    return ConfirmRead(
        origin=asked.origin,
        receiver=asked.receiver,
        seqno=asked.seqno,
        changed=found.changed,
        confirmed_seqno=found.confirmed_seqno,
        confirmed_before=found.confirmed_before,
        is_forced=asked.force,
    )


def require_node(catalog: Catalog, node: int, *, pointer: str) -> None:
    """Raise UnknownNode unless the cluster has the node."""
    if catalog.node(node) is None:
        raise UnknownNode(node, pointer=pointer, known=tuple(each.id for each in catalog.nodes))


def _require_another(asked: ConfirmRequest) -> None:
    if asked.receiver == asked.origin:
        fault = {"pointer": "/receiver", "detail": "the origin itself"}
        raise ReceiverIsOrigin("a node does not confirm its own events", errors=[fault])


def _look(conn: Connection, catalog: Catalog, asked: ConfirmRequest) -> _Held:
    with conn.transaction(read_only=True):
        event = read_event(conn, catalog, asked.origin, asked.seqno)
        upto = confirmed_upto(conn, catalog).get((asked.origin, asked.receiver))
    return _Held(event, upto)


def _ask_receiver(database: Database, settings: Settings, store: Store, asked: ConfirmRequest) -> _Held:
    """What the receiver's own catalog says, where it is registered as a store of the same cluster.

    Raises: ReceiverNotAsked.
    """

    def look(conn: Connection, catalog: Catalog) -> _Held | None:
        return _look(conn, catalog, asked) if catalog.local_node == asked.receiver else None

    try:
        found: ClusterViews[_Held | None] = ask_cluster(database, settings, store, look, purpose=PURPOSE)
    except TargetError as error:
        raise service_error(error) from error
    view = found.views.get(asked.receiver)
    if view is None:
        why = found.why_missing(asked.receiver)
        raise ReceiverNotAsked(
            f"node {asked.receiver} is not asked whether it has processed the event: {_REASONS[why]};"
            " an admin may force it",
            extra={"why": why},
        )
    assert view.found is not None, "it is the receiver's own"
    return view.found


_REASONS = {
    "NOT_REGISTERED": "no store of this cluster is that node",
    "UNREACHABLE": "a store of this cluster's name does not answer",
}


def _require_processed(held: _Held, ours: Event | None, asked: ConfirmRequest) -> None:
    """Raise NotProcessedByReceiver unless the receiver's own catalog has the event, or confirms it."""
    name = f"event {asked.seqno} of node {asked.origin}"
    if held.event is not None and ours is not None and _is_another(held.event, ours):
        detail = f"node {asked.receiver} holds another event by the number of {name}: is it another cluster?"
        raise NotProcessedByReceiver(detail)
    if held.event is None and (held.upto is None or held.upto < asked.seqno):
        upto = "nothing of that node" if held.upto is None else f"up to {held.upto}"
        raise NotProcessedByReceiver(
            f"node {asked.receiver} does not hold {name}; it has processed {upto}",
            extra={"processed_seqno": held.upto},
        )


def _is_another(one: Event, other: Event) -> bool:
    """Whether two events of one number differ: an event keeps its time and type wherever it goes."""
    return (one.type, one.timestamp) != (other.type, other.timestamp)
