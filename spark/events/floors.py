"""How far an origin's events are confirmed, read at this moment; the same for a plan, a unit and a switch.

Receivers are rows of sl_node as it is now: a node may have been stored since the catalog was read.
A confirmation of an event that this node itself has not made yet is of another life: of this node, which was
restored from a backup, or of that one. It says nothing of the events that are here.
"""

from dataclasses import dataclass

from spark.formats.slony import SYNC
from spark.targets.connection import Connection


@dataclass(frozen=True, slots=True)
class Receiver:
    """A node other than the origin.

    Args:
        newest: the greatest confirmed seqno: everything up to it is confirmed. None: there is no row, or it
            is of an event that was never made.
    """

    node: int
    is_active: bool
    newest: int | None


@dataclass(frozen=True, slots=True)
class OldestSync:
    """The oldest SYNC of an origin that is left; `xmin` None: it has no snapshot, so it covers nothing."""

    seqno: int
    xmin: int | None


def read_receivers(conn: Connection, schema: str, origin: int) -> list[Receiver]:
    """Every node with its confirmations of an origin, in order; the origin only if it has some of itself."""
    node, confirm = conn.dialect.qualify(schema, "sl_node"), conn.dialect.qualify(schema, "sl_confirm")
    event, local = conn.dialect.qualify(schema, "sl_event"), conn.dialect.qualify(schema, "sl_local_node_id")
    # From the upper end: below the lower one lie the dead rows of what was removed just now.
    rows = conn.execute(
        "select n.no_id, coalesce(n.no_active, false) and not coalesce(n.no_failed, false),"
        f" case when :origin <> (select last_value from {local}) or newest.con_seqno <= (select"
        f" coalesce(max(ev_seqno), 0) from {event} where ev_origin = :origin) then newest.con_seqno end"
        f" from {node} n left join lateral (select con_seqno from {confirm} where con_origin = :origin"
        " and con_received = n.no_id order by con_seqno desc limit 1) as newest on true"
        " where n.no_id <> :origin or newest.con_seqno is not null order by n.no_id",
        {"origin": origin},
    )
    return [Receiver(node, active and node != origin, newest) for node, active, newest in rows]


def confirmed_by_all(receivers: list[Receiver]) -> int | None:
    """Up to where every receiver has confirmed, inactive ones by the rows they have.

    None: nobody has confirmed anything, or an active one has not.
    """
    if any(item.is_active and item.newest is None for item in receivers):
        return None
    return min((item.newest for item in receivers if item.newest is not None), default=None)


def late_receiver(conn: Connection, schema: str, origin: int, seqno: int) -> int | None:
    """The first active receiver that has not confirmed an event; None: all have."""
    for receiver in read_receivers(conn, schema, origin):
        if receiver.is_active and (receiver.newest is None or receiver.newest < seqno):
            return receiver.node
    return None


def is_node(conn: Connection, schema: str, node: int) -> bool:
    """Whether a node is in the cluster."""
    [(found,)] = conn.execute(
        f"select exists (select from {conn.dialect.qualify(schema, 'sl_node')} where no_id = :node)",
        {"node": node},
    )
    return bool(found)


def newest_sync(conn: Connection, schema: str, origin: int, *, upto: int) -> int | None:
    """The newest SYNC of an origin up to a seqno; None: there is none."""
    [(seqno,)] = conn.execute(
        f"select max(ev_seqno) from {conn.dialect.qualify(schema, 'sl_event')}"
        " where ev_origin = :origin and ev_type = :sync and ev_seqno <= :upto",
        {"origin": origin, "sync": SYNC, "upto": upto},
    )
    return None if seqno is None else int(seqno)


def oldest_sync(conn: Connection, schema: str, origin: int, *, from_seqno: int = 0) -> OldestSync | None:
    """The oldest SYNC of an origin from a seqno on."""
    rows = conn.execute(
        "select ev_seqno, pg_catalog.txid_snapshot_xmin(ev_snapshot)"
        f" from {conn.dialect.qualify(schema, 'sl_event')}"
        " where ev_origin = :origin and ev_type = :sync and ev_seqno >= :from_seqno"
        " order by ev_seqno limit 1",
        {"origin": origin, "sync": SYNC, "from_seqno": from_seqno},
    )
    return OldestSync(*rows[0]) if rows else None


def is_single_node(conn: Connection, schema: str, local_node: int) -> bool:
    """Whether the cluster has no node beside this one: then nobody has anything to confirm."""
    [(others,)] = conn.execute(
        f"select exists (select from {conn.dialect.qualify(schema, 'sl_node')} where no_id <> :local)",
        {"local": local_node},
    )
    return not others


def newest_event(conn: Connection, schema: str, origin: int) -> int | None:
    """The newest event of an origin."""
    [(seqno,)] = conn.execute(
        f"select max(ev_seqno) from {conn.dialect.qualify(schema, 'sl_event')} where ev_origin = :origin",
        {"origin": origin},
    )
    return None if seqno is None else int(seqno)
