"""Who has confirmed what, as one node knows it; and a confirmation made by hand.

Invariants:
- every pair of origin and receiver is there, one that never confirmed anything too: nothing is joined away;
- duplicates of a row change nothing; the first of them tells when;
- a confirmation only ever moves forward, and a slon that writes sl_confirm never waits for it.
Source: slony-events-confirmations, 4.1.2; facts/slony, sections 1, 5 and 7.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from spark.events.records import Catalog, Confirmed
from spark.targets.connection import Connection

FORWARD_CONFIRM: Final = "forwardconfirm"
# One index lookup each: sl_confirm_idx1 is (con_origin, con_received, con_seqno). max() knows no null.
_NEWEST = """
    {origins} o cross join {node} r
    cross join lateral (
        select max(con_seqno) as seqno from {confirm}
        where con_origin = o.no_id and con_received = r.no_id) c
    cross join lateral (
        select min(con_timestamp) as at from {confirm}
        where con_origin = o.no_id and con_received = r.no_id and con_seqno = c.seqno) t
"""
_MATRIX = """
    select o.no_id, r.no_id, c.seqno, t.at, l.seqno, b.events, d.at, u.at
    from {newest}
    cross join lateral (select max(ev_seqno) as seqno from {event} where ev_origin = o.no_id) l
    cross join lateral (
        select count(*) as events from {event}
        where ev_origin = o.no_id and ev_seqno > coalesce(c.seqno, -1)) b
    left join lateral (
        select ev_timestamp as at from {event}
        where ev_origin = o.no_id and ev_seqno <= c.seqno order by ev_seqno desc limit 1) d on true
    left join lateral (
        select ev_timestamp as at from {event}
        where ev_origin = o.no_id and ev_seqno > c.seqno order by ev_seqno limit 1) u on true
    where o.no_id <> r.no_id order by 1, 2
"""


@dataclass(frozen=True, slots=True)
class Confirmer:
    """A node that is to confirm an origin's events.

    Args:
        seqno: the newest that it has confirmed; None: it never confirmed anything of the origin.
        timestamp: of that confirmation.
    """

    receiver: int
    is_active: bool
    seqno: int | None
    timestamp: datetime | None


@dataclass(frozen=True, slots=True)
class Confirmers:
    """Who has confirmed one event, or a later one of its origin.

    Args:
        confirmed_by: in order, whether active or not.
        outstanding: ids of the active nodes that have not, in order.
    """

    confirmed_by: tuple[Confirmer, ...]
    outstanding: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConfirmOutcome:
    """What became of a confirmation.

    Args:
        changed: False: the receiver had confirmed as far or further.
        confirmed_before: the newest confirmed seqno before; None: there was none.
        confirmed_seqno: the newest confirmed seqno now.
    """

    changed: bool
    confirmed_before: int | None
    confirmed_seqno: int


def read_matrix(conn: Connection, catalog: Catalog) -> list[Confirmed]:
    """How far every node has confirmed every other's events; by origin, then receiver.

    The lag of a receiver that is behind is the age of the event that it confirmed last, as sl_status tells
    it. Where that event is gone the newest before it counts, else the oldest that is not confirmed.
    """
    event = conn.dialect.qualify(catalog.schema, "sl_event")
    rows = conn.execute(_MATRIX.format(newest=_newest(conn, catalog), event=event))
    [(now,)] = conn.execute("select clock_timestamp()")
    return [
        Confirmed(
            origin=int(origin),
            receiver=int(receiver),
            seqno=seqno,
            timestamp=_utc(at),
            last_seqno=last,
            lag_events=int(events),
            lag=_lag(now, seqno, int(events), done_at or undone_at),
        )
        for origin, receiver, seqno, at, last, events, done_at, undone_at in rows
    ]


def confirmers(conn: Connection, catalog: Catalog, origin: int, seqno: int) -> Confirmers:
    """Who has confirmed an event of an origin, and which active node has not.

    The origin itself confirms nothing. An origin that is no node any more has every node as receiver.
    """
    newest = _newest(conn, catalog, origins="(select cast(:origin as integer) as no_id)")
    rows = conn.execute(
        "select r.no_id, coalesce(r.no_active, false) and not coalesce(r.no_failed, false), c.seqno, t.at"
        f" from {newest} where o.no_id <> r.no_id order by 1",
        {"origin": origin},
    )
    found = [Confirmer(int(i), active, newest_seqno, _utc(at)) for i, active, newest_seqno, at in rows]
    done = [one for one in found if one.seqno is not None and one.seqno >= seqno]
    return Confirmers(
        confirmed_by=tuple(done),
        outstanding=tuple(one.receiver for one in found if one.is_active and one not in done),
    )


def confirmed_upto(conn: Connection, catalog: Catalog) -> dict[tuple[int, int], int]:
    """(origin, receiver) -> newest confirmed seqno, of the nodes in sl_node; no row, no entry."""
    rows = conn.execute(
        f"select o.no_id, r.no_id, c.seqno from {_newest(conn, catalog)}"
        " where o.no_id <> r.no_id and c.seqno is not null"
    )
    return {(int(origin), int(receiver)): int(seqno) for origin, receiver, seqno in rows}


def confirm(conn: Connection, catalog: Catalog, origin: int, receiver: int, seqno: int) -> ConfirmOutcome:
    """Record that a receiver has processed an origin's events up to one, in a transaction of its own.

    Nothing is locked: two that do it at once may both insert, and the greater counts.

    Raises: TargetReadOnly: no right to.
    """
    assert origin != receiver, "an origin does not confirm its own events"
    assert seqno > 0, "events are numbered from 1"
    params = {"origin": origin, "receiver": receiver, "seqno": seqno}
    with conn.transaction():
        if FORWARD_CONFIRM in catalog.functions:
            return _by_function(conn, catalog, params)
        return _by_insert(conn, catalog, params)


def _by_function(conn: Connection, catalog: Catalog, params: dict[str, int]) -> ConfirmOutcome:
    confirm_table = conn.dialect.qualify(catalog.schema, "sl_confirm")
    pair = "con_origin = cast(:origin as integer) and con_received = cast(:receiver as integer)"
    [(before,)] = conn.execute(f"select max(con_seqno) from {confirm_table} where {pair}", params)
    # Its last argument has no zone, and becomes a timestamptz in the zone of this session, as it was.
    [(seqno,)] = conn.execute(
        f"select {conn.dialect.qualify(catalog.schema, FORWARD_CONFIRM)}(cast(:origin as integer),"
        " cast(:receiver as integer), cast(:seqno as bigint), cast(clock_timestamp() as timestamp))",
        params,
    )
    # A slon may have confirmed as far since `before` was read: whose row it is tells whether ours went in.
    [(changed,)] = conn.execute(
        f"select exists (select from {confirm_table} where {pair} and con_seqno = cast(:seqno as bigint)"
        " and cast(cast(xmin as text) as bigint) = txid_current() % 4294967296)",
        params,
    )
    return ConfirmOutcome(changed=bool(changed), confirmed_before=before, confirmed_seqno=int(seqno))


def _by_insert(conn: Connection, catalog: Catalog, params: dict[str, int]) -> ConfirmOutcome:
    confirm_table = conn.dialect.qualify(catalog.schema, "sl_confirm")
    [(before, put)] = conn.execute(
        f"with was as (select max(con_seqno) as seqno from {confirm_table}"
        "   where con_origin = cast(:origin as integer) and con_received = cast(:receiver as integer)),"
        f" put as (insert into {confirm_table} (con_origin, con_received, con_seqno, con_timestamp)"
        "   select cast(:origin as integer), cast(:receiver as integer), cast(:seqno as bigint),"
        "   clock_timestamp() from was where coalesce(was.seqno, -1) < cast(:seqno as bigint)"
        "   returning con_seqno)"
        " select was.seqno, (select con_seqno from put) from was",
        params,
    )
    if put is None:
        return ConfirmOutcome(changed=False, confirmed_before=before, confirmed_seqno=int(before))
    return ConfirmOutcome(changed=True, confirmed_before=before, confirmed_seqno=int(put))


def _newest(conn: Connection, catalog: Catalog, *, origins: str | None = None) -> str:
    """A FROM clause: `o` and `r` in every pair, `c.seqno` the newest confirmation, `t.at` its time.

    Args:
        origins: what is taken as `o` with its column no_id; all nodes unless it is given.
    """
    node = conn.dialect.qualify(catalog.schema, "sl_node")
    confirm_table = conn.dialect.qualify(catalog.schema, "sl_confirm")
    return _NEWEST.format(origins=origins or node, node=node, confirm=confirm_table)


def _lag(now: datetime, seqno: int | None, events: int, at: datetime | None) -> timedelta | None:
    if seqno is None:
        return None
    if events == 0 or at is None:
        return timedelta(0)
    # An origin's clock may be ahead of this node's.
    return max(now - at, timedelta(0))


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)
