"""Events of a node's catalog: pages, one by its key, the newest of an origin, a new SYNC.

Invariants:
- a page is one walk along the primary key (ev_origin, ev_seqno), from where the last one ended;
- no secret of a connection string leaves this module: STORE_PATH events carry one;
- a SYNC is made by the cluster's own function, under the lock that its programs take.
Source: slony-events-confirmations, 4.1.1; facts/slony, section 5.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from spark.events.catalog import SECRETS
from spark.events.errors import FunctionsMissing, NodeUninitialised
from spark.events.records import Catalog, Event
from spark.formats.slony import SYNC
from spark.targets.connection import Connection
from spark.targets.dialects.dialect import Row
from spark.targets.dialects.drivers import psycopg
from spark.targets.errors import TargetError

PAGE_MAX: Final = 1_000
CREATE_EVENT: Final = "createevent"
EVENT_LOCK: Final = "sl_event_lock"
STORE_PATH: Final = "STORE_PATH"
_CONNINFO: Final = 2
"""Where STORE_PATH has its connection string: ev_data3."""
MASK: Final = "***"
_NO_FUNCTION: Final = ("42883", "58P01")
"""SQLSTATEs: the function is gone; its library cannot be opened."""
_COLUMNS: Final = (
    # Neither time nor type is ever null in the program's rows; its tables would allow it.
    "e.ev_origin, e.ev_seqno, coalesce(e.ev_timestamp, '-infinity'), e.ev_snapshot::text,"
    " coalesce(e.ev_type, ''), e.ev_data1, e.ev_data2, e.ev_data3, e.ev_data4, e.ev_data5, e.ev_data6,"
    " e.ev_data7, e.ev_data8"
)


def select_events(
    conn: Connection,
    catalog: Catalog,
    *,
    origins: Sequence[int] = (),
    types: Sequence[str] = (),
    from_seqno: int | None = None,
    upto_seqno: int | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    after: tuple[int, int] | None = None,
    limit: int,
) -> list[Event]:
    """A page of events by origin and seqno.

    Args:
        origins, types: of these; empty: of any.
        from_seqno, upto_seqno: inclusive.
        created_after, created_before: exclusive, aware; an origin's clock made the times.
        after: (origin, seqno) of the last event of the page before.
        limit: rows, 1 to PAGE_MAX.
    """
    assert 1 <= limit <= PAGE_MAX, "a page has a limit"
    conditions = {
        "origins": ("e.ev_origin = any(cast(:origins as integer[]))", list(origins) or None),
        "types": ("e.ev_type = any(cast(:types as text[]))", list(types) or None),
        "from_seqno": ("e.ev_seqno >= cast(:from_seqno as bigint)", from_seqno),
        "upto_seqno": ("e.ev_seqno <= cast(:upto_seqno as bigint)", upto_seqno),
        "created_after": ("e.ev_timestamp > :created_after", created_after),
        "created_before": ("e.ev_timestamp < :created_before", created_before),
        "after_origin": (
            "(e.ev_origin, e.ev_seqno) > (cast(:after_origin as integer), cast(:after_seqno as bigint))",
            None if after is None else after[0],
        ),
    }
    asked = {name: (text, value) for name, (text, value) in conditions.items() if value is not None}
    params: dict[str, object] = {name: value for name, (_, value) in asked.items()}
    params |= {"limit": limit} | ({} if after is None else {"after_seqno": after[1]})
    where = " and ".join(text for text, _ in asked.values()) or "true"
    rows = conn.execute(
        f"select {_COLUMNS} from {conn.dialect.qualify(catalog.schema, 'sl_event')} e"
        f" where {where} order by e.ev_origin, e.ev_seqno limit :limit",
        params,
    )
    return [_event(row) for row in rows]


def read_event(conn: Connection, catalog: Catalog, origin: int, seqno: int) -> Event | None:
    """One event; None: it is not here, or not any more."""
    rows = conn.execute(
        f"select {_COLUMNS} from {conn.dialect.qualify(catalog.schema, 'sl_event')} e"
        " where e.ev_origin = cast(:origin as integer) and e.ev_seqno = cast(:seqno as bigint)",
        {"origin": origin, "seqno": seqno},
    )
    return _event(rows[0]) if rows else None


def last_seqno(conn: Connection, catalog: Catalog, origin: int, *, config_only: bool = False) -> int | None:
    """The origin's newest event here; None: there is none.

    Args:
        config_only: only events that are no SYNC.
    """
    config = f" and e.ev_type is distinct from '{SYNC}'" if config_only else ""
    rows = conn.execute(
        f"select e.ev_seqno from {conn.dialect.qualify(catalog.schema, 'sl_event')} e"
        f" where e.ev_origin = cast(:origin as integer){config} order by e.ev_seqno desc limit 1",
        {"origin": origin},
    )
    return int(rows[0][0]) if rows else None


def config_events(
    conn: Connection, catalog: Catalog, origin: int, *, after: int, upto: int, limit: int | None = None
) -> list[Event]:
    """An origin's events that are no SYNC, of a range of seqnos without its lower end; the first `limit`."""
    rows = conn.execute(
        f"select {_COLUMNS} from {conn.dialect.qualify(catalog.schema, 'sl_event')} e"
        " where e.ev_origin = cast(:origin as integer) and e.ev_seqno > cast(:after as bigint)"
        f" and e.ev_seqno <= cast(:upto as bigint) and e.ev_type is distinct from '{SYNC}'"
        " order by e.ev_seqno limit cast(:limit as bigint)",
        {"origin": origin, "after": after, "upto": upto, "limit": limit},
    )
    return [_event(row) for row in rows]


def create_sync(conn: Connection, catalog: Catalog) -> Event:
    """Make a SYNC of this node, in a transaction of its own.

    The function itself locks nothing: without the lock that slon and slonik take before it, a SYNC could be
    committed after a greater one of a later snapshot. Listeners ask only for what is above the greatest they
    have seen, and would miss it.

    Raises: FunctionsMissing; TargetLockTimeout: another event is being made just now.
    """
    require_create_event(catalog)
    with conn.transaction():
        lock_events(conn, catalog)
        return insert_sync(conn, catalog)


def require_create_event(catalog: Catalog) -> None:
    """Raise FunctionsMissing where the cluster's function is not there, or may not be called."""
    if CREATE_EVENT not in catalog.functions:
        raise FunctionsMissing(f"the functions of cluster {catalog.cluster!r} are not installed here")


def lock_events(conn: Connection, catalog: Catalog) -> None:
    """Take the lock under which a node's events are made, to the end of the transaction.

    Raises: TargetLockTimeout: another event is being made just now.
    """
    assert conn.in_transaction, "the lock ends with its transaction"
    conn.execute(f"lock table {conn.dialect.qualify(catalog.schema, EVENT_LOCK)}")


def insert_sync(conn: Connection, catalog: Catalog) -> Event:
    """Make a SYNC of this node inside a transaction that holds the lock of its events.

    Raises: FunctionsMissing; NodeUninitialised: the catalog belongs to another node by now.
    """
    assert conn.in_transaction, "the lock ends with its transaction"
    try:
        [(seqno,)] = conn.execute(
            f"select {conn.dialect.qualify(catalog.schema, CREATE_EVENT)}(cast(:schema as name), :type)",
            {"schema": catalog.schema, "type": SYNC},
        )
    except TargetError as error:
        if error.sqlstate in _NO_FUNCTION:
            raise FunctionsMissing(error.detail, sqlstate=error.sqlstate) from error
        raise
    made = read_event(conn, catalog, catalog.local_node, int(seqno))
    if made is None:  # the function asks the catalog again whose it is
        raise NodeUninitialised(f"the catalog does not belong to node {catalog.local_node} any more")
    return made


def _event(row: Row) -> Event:
    origin, seqno, timestamp, snapshot, kind, *data = row
    if kind == STORE_PATH:
        data[_CONNINFO] = _masked(data[_CONNINFO])
    return Event(
        origin=int(origin),
        seqno=int(seqno),
        timestamp=timestamp.astimezone(UTC),
        snapshot=snapshot,
        type=kind,
        data=tuple(data),
    )


def _masked(conninfo: str | None) -> str | None:
    """A connection string with its secrets masked; as it is where it has none."""
    if conninfo is None:
        return None
    try:
        parts = psycopg.conninfo.conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        return MASK  # what cannot be read may hold anything
    found = SECRETS.intersection(parts)
    return psycopg.conninfo.make_conninfo("", **parts | dict.fromkeys(found, MASK)) if found else conninfo
