"""How many events each origin has, and how many of them lie below its bound: counted, or told by seqnos.

To count means to read the whole table. Where nothing has to be held against a limit, the ends of an index
tell enough: seqnos are unique, so there are at most so many events below a bound.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from spark.events.floors import newest_sync, oldest_sync
from spark.formats.slony import SEQNO_MAX, SYNC
from spark.targets.connection import Connection


@dataclass(frozen=True, slots=True)
class EventCount:
    """The events of one origin.

    Args:
        rows, syncs: of all; `below` and `syncs_below`: of those below the bound.
        oldest_sync, newest_sync: of all; None: there is none.
    """

    origin: int
    rows: int
    syncs: int
    first: int
    last: int
    oldest_sync: int | None
    newest_sync: int | None
    below: int = 0
    syncs_below: int = 0


def count_events(conn: Connection, schema: str, bounds: Mapping[int, int]) -> list[EventCount]:
    """Every origin that has events, counted in one pass over them.

    Args:
        bounds: by origin; one without a bound has nothing below it.
    """
    rows = conn.execute(
        "select ev_origin, sum(rows)::bigint, coalesce(sum(rows) filter (where is_sync), 0)::bigint,"
        " min(lowest), max(highest), min(lowest) filter (where is_sync),"
        " max(highest) filter (where is_sync)"
        " from (select ev_origin, ev_type = :sync as is_sync, count(*) as rows, min(ev_seqno) as lowest,"
        f" max(ev_seqno) as highest from {_events(conn, schema)} group by 1, 2) as counted"
        " group by ev_origin order by ev_origin",
        {"sync": SYNC},
    )
    return [_with_below(conn, schema, EventCount(*row), bounds.get(row[0])) for row in rows]


def _with_below(conn: Connection, schema: str, events: EventCount, bound: int | None) -> EventCount:
    """Counted is the side of the bound that looks shorter."""
    if bound is None:
        return events
    is_below = bound - events.first <= events.last - bound
    rows, syncs = _count(conn, schema, events.origin, "<" if is_below else ">=", bound)
    if is_below:
        return replace(events, below=rows, syncs_below=syncs)
    return replace(events, below=events.rows - rows, syncs_below=events.syncs - syncs)


def estimate_events(conn: Connection, schema: str, bounds: Mapping[int, int]) -> list[EventCount]:
    """As `count_events`, but what lies below a bound is told by its seqnos: at most so many, SYNCs or not.

    What stays is counted.
    """
    return [_estimated(conn, schema, origin, bounds.get(origin)) for origin in _origins(conn, schema)]


def _estimated(conn: Connection, schema: str, origin: int, bound: int | None) -> EventCount:
    [(first, last)] = conn.execute(
        f"select min(ev_seqno), max(ev_seqno) from {_events(conn, schema)} where ev_origin = :origin",
        {"origin": origin},
    )
    rows, syncs = _count(conn, schema, origin, ">=", first if bound is None else bound)
    below = 0 if bound is None else max(0, bound - first)
    oldest = oldest_sync(conn, schema, origin)
    return EventCount(
        origin,
        rows=rows + below,
        syncs=syncs + below,
        first=first,
        last=last,
        oldest_sync=None if oldest is None else oldest.seqno,
        newest_sync=newest_sync(conn, schema, origin, upto=SEQNO_MAX),
        below=below,
        syncs_below=below,
    )


def _origins(conn: Connection, schema: str) -> Iterator[int]:
    """Origins that have events, by the first of each alone."""
    table = _events(conn, schema)
    rows = conn.execute(
        "with recursive found (origin) as ("
        f"(select ev_origin from {table} order by ev_origin, ev_seqno limit 1) union all"
        f" select (select ev_origin from {table} where ev_origin > found.origin"
        " order by ev_origin, ev_seqno limit 1) from found where found.origin is not null)"
        " select origin from found where origin is not null"
    )
    return (int(origin) for (origin,) in rows)


def _count(conn: Connection, schema: str, origin: int, side: str, bound: int) -> tuple[int, int]:
    """Events of one side of a bound, and SYNCs of them."""
    [(rows, syncs)] = conn.execute(
        "select count(*), count(*) filter (where ev_type = :sync)"
        f" from {_events(conn, schema)} where ev_origin = :origin and ev_seqno {side} :bound",
        {"sync": SYNC, "origin": origin, "bound": bound},
    )
    return int(rows), int(syncs)


def _events(conn: Connection, schema: str) -> str:
    return conn.dialect.qualify(schema, "sl_event")
