"""The two log tables: which is written, and whether every origin's rows in the other have been replicated.

An origin is drained where its oldest SYNC left sees every row of it in the table, and every active receiver
has confirmed that SYNC. The program asks only the first, and asks nothing of an origin without a SYNC.
Of a node that is no longer in sl_node only the SYNCs that it left count: nobody can ask for its rows.
Source: facts/slony, section 3.
"""

from collections.abc import Mapping

from spark.events.cleaning.records import LogOrigin, LogTable
from spark.events.floors import (
    OldestSync,
    confirmed_by_all,
    is_single_node,
    late_receiver,
    newest_sync,
    oldest_sync,
    read_receivers,
)
from spark.events.records import Catalog
from spark.formats.slony import SEQNO_MAX, LogStatus
from spark.targets.connection import Connection


def read_status(conn: Connection, schema: str) -> LogStatus:
    """The status as it is at this moment: a sequence knows no snapshot."""
    [(value,)] = conn.execute(f"select last_value from {conn.dialect.qualify(schema, 'sl_log_status')}")
    return LogStatus(int(value))


def has_rows(conn: Connection, schema: str, table: str) -> bool:
    """Whether a log table has any committed row."""
    [(found,)] = conn.execute(f"select exists (select from {conn.dialect.qualify(schema, table)})")
    return bool(found)


def read_origins(
    conn: Connection, schema: str, table: str, *, bounds: Mapping[int, int] | None = None
) -> tuple[LogOrigin, ...]:
    """Every origin that has rows in a log table, and whether it is drained.

    Args:
        bounds: events below are taken for gone, by origin.
    """
    found = _origins(conn, schema, table)
    known = {node for (node,) in conn.execute(f"select no_id from {conn.dialect.qualify(schema, 'sl_node')}")}
    return tuple(
        _read_origin(
            conn,
            schema,
            table,
            origin,
            from_seqno=(bounds or {}).get(origin, 0),
            is_known=origin in known,
        )
        for origin in found
    )


def confirmed_bounds(conn: Connection, catalog: Catalog) -> dict[int, int]:
    """By origin the newest SYNC that every receiver has confirmed: where a cleanup of now would cut.

    What a cleanup cuts at, a switch may be proved by: no node asks again for anything below, whether the
    events there have been removed yet or not. An inactive receiver counts by the rows it has, as the program
    counts it; an active one without any row leaves its origin out.
    Source: facts/slony, section 2, step 3; section 3.
    """
    schema = catalog.schema
    nodes = [node for (node,) in conn.execute(f"select no_id from {conn.dialect.qualify(schema, 'sl_node')}")]
    is_single = is_single_node(conn, schema, catalog.local_node)
    bounds = {}
    for origin in nodes:
        upto = SEQNO_MAX if is_single else confirmed_by_all(read_receivers(conn, schema, origin))
        sync = None if upto is None else newest_sync(conn, schema, origin, upto=upto)
        if sync is not None:
            bounds[origin] = sync
    return bounds


def read_table(conn: Connection, schema: str, table: str) -> LogTable:
    """How large a log table is, as the statistics have it."""
    name = conn.dialect.qualify(schema, table)
    [(rows, size)] = conn.execute(
        "select c.reltuples::bigint, pg_catalog.pg_total_relation_size(c.oid)"
        " from pg_catalog.pg_class c where c.oid = cast(:name as regclass)",
        {"name": name},
    )
    return LogTable(table, None if rows < 0 else int(rows), int(size), not has_rows(conn, schema, table))


def _origins(conn: Connection, schema: str, table: str) -> list[int]:
    """The distinct origins, one probe of the index each: the table may have any number of rows."""
    log = conn.dialect.qualify(schema, table)
    rows = conn.execute(
        f"with recursive found(origin) as ((select min(log_origin) from {log}) union all"
        f" select (select min(log_origin) from {log} where log_origin > found.origin) from found"
        " where found.origin is not null) select origin from found where origin is not null order by origin"
    )
    return [int(origin) for (origin,) in rows]


def _read_origin(
    conn: Connection, schema: str, table: str, origin: int, *, from_seqno: int, is_known: bool
) -> LogOrigin:
    oldest = oldest_sync(conn, schema, origin, from_seqno=from_seqno)
    if oldest is None or oldest.xmin is None:  # one without a snapshot tells nothing either
        first = _first_txid(conn, schema, table, origin, 0)
        return LogOrigin(origin, None, None, first, "NO_SYNC" if is_known else None)
    undrained = _first_txid(conn, schema, table, origin, oldest.xmin)
    if undrained is not None:
        return LogOrigin(origin, oldest.seqno, oldest.xmin, undrained, "NOT_DRAINED")
    if not is_known:
        return LogOrigin(origin, oldest.seqno, oldest.xmin, None, None)
    return _confirmed(conn, schema, origin, oldest)


def _first_txid(conn: Connection, schema: str, table: str, origin: int, from_txid: int) -> int | None:
    [(txid,)] = conn.execute(
        f"select min(log_txid) from {conn.dialect.qualify(schema, table)}"
        " where log_origin = :origin and log_txid >= :from_txid",
        {"origin": origin, "from_txid": from_txid},
    )
    return None if txid is None else int(txid)


def _confirmed(conn: Connection, schema: str, origin: int, oldest: OldestSync) -> LogOrigin:
    late = late_receiver(conn, schema, origin, oldest.seqno)
    if late is not None:
        return LogOrigin(origin, oldest.seqno, oldest.xmin, None, "NOT_CONFIRMED", late)
    return LogOrigin(origin, oldest.seqno, oldest.xmin, None, None)
