"""What a node's health is judged by, read from it. Reads only, each statement with a time limit.

Every statement takes steps in an index, or looks at small tables: a node far behind has millions of events.
Source: facts/slony, sections 1, 3, 4, 5 and 8; the tools of Slony-I that look at the same.
"""

from datetime import UTC, datetime
from typing import Final

from spark.events.cleaning.log_switch import read_log_status
from spark.events.health.records import (
    Component,
    Leftover,
    Listen,
    NodeReading,
    OriginEvents,
    Pair,
    PendingDdl,
    Subscription,
    Transaction,
)
from spark.events.records import Catalog
from spark.targets.connection import Connection, target_now

STATEMENT_MS: Final = 5_000
TRANSACTIONS_MAX: Final = 20
LEFTOVERS_MAX: Final = 50
LISTENS_MAX: Final = 20_000
OPTIONAL: Final = ("sl_listen", "sl_subscribe", "sl_set", "sl_log_script", "sl_components", "sl_nodelock")
"""What a role may be unable to read that can read events and confirmations."""
SIZED: Final = ("sl_log_1", "sl_log_2", "sl_seqlog", "sl_event", "sl_confirm")

_READABLE = """
    select c.relname::text from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = :schema and c.relname = any(:tables) and c.relkind in ('r', 'p')
        and pg_catalog.has_table_privilege(c.oid, 'SELECT')
"""
_SEES_ALL = """
    select pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
        or (select rolsuper from pg_catalog.pg_roles where rolname = current_user)
"""
_ORIGINS = """
    select n.no_id, e.ev_seqno, e.ev_timestamp, s.ev_timestamp from {node} n
    left join lateral (
        select ev_seqno, ev_timestamp from {event} where ev_origin = n.no_id
        order by ev_seqno desc limit 1) e on true
    left join lateral (
        select ev_timestamp from {event} where ev_origin = n.no_id and ev_type = 'SYNC'
        order by ev_seqno desc limit 1) s on true
    order by 1
"""
# max() knows no null; duplicates of a confirmation change nothing, the first tells when.
_PAIRS = """
    select o.no_id, r.no_id, c.seqno, t.at, u.at from {node} o cross join {node} r
    cross join lateral (
        select max(con_seqno) as seqno from {confirm}
        where con_origin = o.no_id and con_received = r.no_id) c
    left join lateral (
        select min(con_timestamp) as at from {confirm}
        where con_origin = o.no_id and con_received = r.no_id and con_seqno = c.seqno) t on true
    left join lateral (
        select ev_timestamp as at from {event}
        where ev_origin = o.no_id and ev_seqno > coalesce(c.seqno, -1) order by ev_seqno limit 1) u on true
    where o.no_id <> r.no_id order by 1, 2
"""
# Each step of a recursion goes to the next value in an index.
_LEFTOVERS = """
    with recursive origins (id) as (
        select min(ev_origin) from {event}
        union all
        select (select min(ev_origin) from {event} where ev_origin > origins.id)
        from origins where origins.id is not null
    ), confirmed (id) as (
        select min(con_origin) from {confirm}
        union all
        select (select min(con_origin) from {confirm} where con_origin > confirmed.id)
        from confirmed where confirmed.id is not null
    ), receivers (id) as (
        select min(con_received) from {confirm}
        union all
        select (select min(con_received) from {confirm} where con_received > receivers.id)
        from receivers where receivers.id is not null
    )
    select g.id, g.name, g.at from (
        select id, 'sl_event' as name, (select ev_timestamp from {event} where ev_origin = id
            order by ev_seqno desc limit 1) as at from origins
        union all
        select id, 'sl_confirm', (select con_timestamp from {confirm} where con_origin = id
            order by con_received desc, con_seqno desc limit 1) from confirmed
        union all
        select id, 'sl_confirm', (select con_timestamp from {confirm} where con_received = id
            order by con_seqno desc limit 1) from receivers
    ) g where g.id is not null and not exists (select from {node} where no_id = g.id)
    order by 1, 2 limit :limit
"""
# Of other databases only what has a transaction id: that holds back the snapshots of SYNCs here too.
_TRANSACTIONS = """
    select pid, coalesce(application_name, ''), coalesce(usename::text, ''), coalesce(datname::text, ''),
        coalesce(state, ''), xact_start
    from pg_catalog.pg_stat_activity
    where xact_start is not null and pid <> pg_catalog.pg_backend_pid() and backend_type = 'client backend'
        and (datname = current_database() or backend_xid is not null)
    union all
    select null, '', owner::text, database::text, 'prepared', prepared from pg_catalog.pg_prepared_xacts
    order by 6 limit :limit
"""
_OWN_SLON = """
    select exists (
        select from pg_catalog.pg_stat_activity a
        where a.datname = current_database() and a.application_name like 'slon.%' and a.pid in ({pids}))
"""
_PIDS: Final = {
    "sl_nodelock": "select nl_backendpid from {table} where nl_nodeid = :local and nl_conncnt = 0",
    "sl_components": r"select co_connection_pid from {table} where co_actor like 'local\_%'",
}
"""The sessions of a node's own slon, by what it writes down of itself."""
# A row may be left of a slon that has ended. What listens at other nodes has its session there: it is of the
# same process as those that are here.
_COMPONENTS = """
    with here as (
        select c.co_actor, c.co_pid from {components} c
        join pg_catalog.pg_stat_activity a on a.pid = c.co_connection_pid
        where a.datname = current_database() and a.application_name like 'slon.%')
    select c.co_actor, coalesce(c.co_node, 0), c.co_activity, c.co_starttime from {components} c
    where c.co_actor in (select co_actor from here)
        or c.co_actor = 'remote listener' and c.co_pid in (select co_pid from here)
    order by 1
"""
_SUBSCRIPTIONS = """
    select s.sub_set, t.set_origin, s.sub_provider, s.sub_receiver, s.sub_active,
        case when not s.sub_active then (
            select max(e.ev_timestamp) from {event} e
            where e.ev_type in ('SUBSCRIBE_SET', 'ENABLE_SUBSCRIPTION')
                and e.ev_data1 = s.sub_set::text and e.ev_data3 = s.sub_receiver::text) end
    from {subscribe} s join {set} t on t.set_id = s.sub_set order by 1, 4
"""
_DDL = """
    select r.receiver, count(*), min((
        select e.ev_timestamp from {event} e
        where e.ev_origin = :local and e.ev_type = 'SYNC' and e.ev_seqno > s.ev_seqno
            and pg_catalog.txid_visible_in_snapshot(l.log_txid, e.ev_snapshot)
        order by e.ev_seqno limit 1))
    from (select distinct b.sub_receiver as receiver from {subscribe} b
          join {set} t on t.set_id = b.sub_set where t.set_origin = :local and b.sub_active) r
    cross join lateral (
        select max(con_seqno) as seqno from {confirm}
        where con_origin = :local and con_received = r.receiver) c
    cross join lateral (
        select ev_seqno, ev_snapshot from {event}
        where ev_origin = :local and ev_type = 'SYNC' and ev_seqno <= c.seqno
        order by ev_seqno desc limit 1) s
    join {log_script} l on l.log_origin = :local
        and not pg_catalog.txid_visible_in_snapshot(l.log_txid, s.ev_snapshot)
    group by 1 order by 1
"""
_ROWS = """
    select c.relname::text, c.reltuples::bigint, pg_catalog.pg_stat_get_live_tuples(c.oid)
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = :schema and c.relname = any(:tables)
"""


def read_health(conn: Connection, catalog: Catalog) -> NodeReading:
    """Read a node; the connection keeps the time limit of its statements.

    Raises: TargetError: a statement took too long, or the role may not read events and confirmations.
    """
    conn.execute(f"set statement_timeout = {STATEMENT_MS}")
    schema = catalog.schema
    names = {table: conn.dialect.qualify(schema, f"sl_{table}") for table in _NAMES}
    readable = _readable(conn, schema)
    [(sees_all,)] = conn.execute(_SEES_ALL)
    knows_sets = {"sl_subscribe", "sl_set"} <= readable
    return NodeReading(
        catalog=catalog,
        now=target_now(conn),
        origins=_origins(conn, names),
        pairs=_pairs(conn, names),
        leftovers=_leftovers(conn, names),
        listens=_listens(conn, names) if "sl_listen" in readable else None,
        subscriptions=_subscriptions(conn, names) if knows_sets else None,
        set_origins=_set_origins(conn, names) if "sl_set" in readable else None,
        has_own_slon=_has_own_slon(conn, catalog, readable),
        components=_components(conn, names) if "sl_components" in readable else None,
        transactions=_transactions(conn),
        sees_all_sessions=bool(sees_all),
        pending_ddl=_pending_ddl(conn, catalog, names)
        if knows_sets and "sl_log_script" in readable
        else None,
        log_status=read_log_status(conn, catalog),
        table_rows=_rows(conn, schema),
        unreadable=tuple(table for table in OPTIONAL if table not in readable),
    )


def read_own_slon(conn: Connection, catalog: Catalog) -> bool | None:
    """Whether a node's own slon is connected to it; None: the role may not see that."""
    return _has_own_slon(conn, catalog, _readable(conn, catalog.schema))


def _readable(conn: Connection, schema: str) -> set[str]:
    rows = conn.execute(_READABLE, {"schema": schema, "tables": list(OPTIONAL)})
    return {table for (table,) in rows}


_NAMES: Final = ("node", "event", "confirm", "listen", "subscribe", "set", "components", "log_script")


def _origins(conn: Connection, names: dict[str, str]) -> tuple[OriginEvents, ...]:
    rows = conn.execute(_ORIGINS.format(**names))
    return tuple(OriginEvents(int(node), seqno, _utc(at), _utc(sync)) for node, seqno, at, sync in rows)


def _pairs(conn: Connection, names: dict[str, str]) -> tuple[Pair, ...]:
    rows = conn.execute(_PAIRS.format(**names))
    return tuple(Pair(int(o), int(r), seqno, _utc(at), _utc(since)) for o, r, seqno, at, since in rows)


def _leftovers(conn: Connection, names: dict[str, str]) -> tuple[Leftover, ...]:
    rows = conn.execute(_LEFTOVERS.format(**names), {"limit": LEFTOVERS_MAX})
    return tuple(Leftover(int(node), table, _utc(at)) for node, table, at in rows)


def _listens(conn: Connection, names: dict[str, str]) -> tuple[Listen, ...]:
    rows = conn.execute(
        f"select li_origin, li_provider, li_receiver from {names['listen']} order by 1, 2, 3 limit :limit",
        {"limit": LISTENS_MAX},
    )
    return tuple(Listen(int(o), int(p), int(r)) for o, p, r in rows)


def _subscriptions(conn: Connection, names: dict[str, str]) -> tuple[Subscription, ...]:
    rows = conn.execute(_SUBSCRIPTIONS.format(**names))
    return tuple(
        Subscription(int(set_id), int(origin), int(provider), int(receiver), bool(active), asked_at)
        for set_id, origin, provider, receiver, active, asked_at in rows
    )


def _set_origins(conn: Connection, names: dict[str, str]) -> frozenset[int]:
    rows = conn.execute(f"select distinct set_origin from {names['set']}")
    return frozenset(int(origin) for (origin,) in rows)


def _has_own_slon(conn: Connection, catalog: Catalog, readable: set[str]) -> bool | None:
    known = {table: pids for table, pids in _PIDS.items() if table in readable}
    if not known:
        return None
    pids = " union all ".join(
        asked.format(table=conn.dialect.qualify(catalog.schema, table)) for table, asked in known.items()
    )
    [(found,)] = conn.execute(_OWN_SLON.format(pids=pids), {"local": catalog.local_node})
    return bool(found)


def _components(conn: Connection, names: dict[str, str]) -> tuple[Component, ...]:
    rows = conn.execute(_COMPONENTS.format(**names))
    return tuple(
        Component(actor, int(node), activity, since.astimezone(UTC)) for actor, node, activity, since in rows
    )


def _transactions(conn: Connection) -> tuple[Transaction, ...]:
    rows = conn.execute(_TRANSACTIONS, {"limit": TRANSACTIONS_MAX})
    return tuple(
        Transaction(pid, application, user, database, state, since.astimezone(UTC))
        for pid, application, user, database, state, since in rows
    )


def _pending_ddl(conn: Connection, catalog: Catalog, names: dict[str, str]) -> tuple[PendingDdl, ...]:
    rows = conn.execute(_DDL.format(**names), {"local": catalog.local_node})
    return tuple(PendingDdl(int(receiver), int(count), _utc(since)) for receiver, count, since in rows)


def _rows(conn: Connection, schema: str) -> dict[str, int | None]:
    """The greater of two estimates: one is as old as the last analyze, the other is lost in a crash."""
    rows = conn.execute(_ROWS, {"schema": schema, "tables": list(SIZED)})
    found = {table: max(int(estimate), int(live or 0)) for table, estimate, live in rows}
    return {table: None if found[table] < 0 else found[table] for table in SIZED if table in found}


def _utc(at: datetime | None) -> datetime | None:
    return None if at is None else at.astimezone(UTC)
