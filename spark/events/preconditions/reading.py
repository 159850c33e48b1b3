"""What a node is asked for a precondition: all at the first look, then what may have changed. Reads only.

Source: facts/slony, sections 1 and 6.
"""

from dataclasses import replace
from typing import Final

from spark.events.confirmations import confirmed_upto
from spark.events.health.reading import read_own_slon
from spark.events.node_views import read_view
from spark.events.preconditions.records import Command, Enabling, Runner, Running, Subscriptions, View
from spark.events.records import Catalog
from spark.targets.connection import Connection

ENABLING: Final = ("SUBSCRIBE_SET", "ENABLE_SUBSCRIPTION")

# ev_data1 is the set, ev_data3 the receiver; of other shapes nothing is known, and nothing is waited for.
_ENABLING = r"""
    select ev_origin, max(ev_seqno), ev_type, ev_data1::int, ev_data3::int from {event}
    where ev_type = any(:types) and ev_data1 ~ '^\d{{1,9}}$' and ev_data3 ~ '^\d{{1,9}}$'
    group by ev_origin, ev_type, ev_data1, ev_data3 order by 1, 2
"""
_RUNNING = """
    select pg_catalog.txid_snapshot_xmin(s), pg_catalog.txid_snapshot_xmax(s)
    from pg_catalog.txid_current_snapshot() s
"""
# Those of all databases: the oldest of them is the oldest of every snapshot.
_RUNNERS = """
    select pid, backend_xid::text::bigint, coalesce(application_name, ''), coalesce(usename::text, ''),
        coalesce(state, ''), extract(epoch from clock_timestamp() - xact_start)::float8 as age
    from pg_catalog.pg_stat_activity where backend_xid is not null
    union all
    select null, transaction::text::bigint, '', owner::text, 'prepared',
        extract(epoch from clock_timestamp() - prepared)::float8
    from pg_catalog.pg_prepared_xacts
    order by age desc nulls last
"""


def read_first(conn: Connection, catalog: Catalog, command: Command) -> View:
    """All that a rule may ask of a node: one scan of sl_event, and what this command needs beside it."""
    return _completed(read_view(conn, catalog), conn, catalog, command)


def read_again(conn: Connection, catalog: Catalog, command: Command) -> View:
    """The same without anybody's newest events: they are fixed, and sl_event is not scanned for them."""
    view = View(catalog.local_node, catalog.nodes, confirmed=confirmed_upto(conn, catalog))
    return _completed(view, conn, catalog, command)


def _completed(view: View, conn: Connection, catalog: Catalog, command: Command) -> View:
    view = replace(view, has_slon=read_own_slon(conn, catalog))
    if command is Command.MERGE_SET:
        return replace(view, enabling=_enabling(conn, catalog))
    if command is Command.LOCK_SET:
        return replace(view, running=_running(conn))
    if command is Command.FAILOVER:
        paths = frozenset((path.server, path.client) for path in catalog.paths)
        return replace(view, subscriptions=_subscriptions(conn, catalog), paths=paths)
    return view


def _enabling(conn: Connection, catalog: Catalog) -> tuple[Enabling, ...]:
    table = conn.dialect.qualify(catalog.schema, "sl_event")
    rows = conn.execute(_ENABLING.format(event=table), {"types": list(ENABLING)})
    return tuple(Enabling(int(o), int(s), str(t), int(i), int(r)) for o, s, t, i, r in rows)


def _running(conn: Connection) -> Running:
    """The sessions first: one that ends in between is not taken for one that nobody shows."""
    # All of them: the youngest say up to where the stricter rule waits. A server has as many as connections.
    rows = conn.execute(_RUNNERS)
    [(oldest, following)] = conn.execute(_RUNNING)
    runners = tuple(Runner(pid, int(xid), a, u, s, float(age or 0)) for pid, xid, a, u, s, age in rows)
    return Running(int(oldest), int(following), runners)


def _subscriptions(conn: Connection, catalog: Catalog) -> Subscriptions:
    names = [conn.dialect.qualify(catalog.schema, name) for name in ("sl_set", "sl_subscribe")]
    origins = conn.execute(f"select set_id, set_origin from {names[0]} order by 1")
    rows = conn.execute(
        "select sub_set, sub_provider, sub_receiver, coalesce(sub_forward, false)"
        f" from {names[1]} order by 1, 3"
    )
    return Subscriptions(
        {int(set_id): int(origin) for set_id, origin in origins},
        tuple((int(s), int(p), int(r), bool(f)) for s, p, r, f in rows),
    )
