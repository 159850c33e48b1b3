"""Catalogs of a Slony-I cluster that nobody has cleaned for long; the cluster's functions are in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from tests.slony_cluster import SlonyCluster

FIRST_SEQNO = 5_000_000_001
FIRST_TXID = 1_000_000
TXIDS_A_SYNC = 3
OTHER_EVERY = 500
"""Each so-manieth event is none of type SYNC."""
CONFIRMED_PART = 0.99
OLDEST, NEWEST = "30 days", "1 hour"
INTERVAL = "10 minutes"
LOG_ROWS_A_SYNC = 0.02
SEQLOG_ROWS_A_SYNC = 0.1

EMPTY = """
truncate sl_event, sl_confirm, sl_seqlog, sl_log_1, sl_log_2;
"""
# Each node is an origin; all of them have as many events.
EVENTS = """
insert into sl_event (ev_origin, ev_seqno, ev_timestamp, ev_snapshot, ev_type, ev_data1)
select no_id, %(first)s + n,
       now() - interval %(oldest)s + n * (interval %(oldest)s - interval %(newest)s) / %(each)s,
       format('%%s:%%s:', %(txid)s + n * %(step)s, %(txid)s + n * %(step)s + 1)::txid_snapshot,
       case when n %% %(other)s = 7 then 'STORE_PATH' else 'SYNC' end,
       case when n %% %(other)s = 7 then '1' end
from generate_series(0, %(each)s - 1) n, sl_node
"""
CONFIRMATIONS = """
insert into sl_confirm (con_origin, con_received, con_seqno, con_timestamp)
select o.no_id, r.no_id, %(first)s + (n + 1)::bigint * (%(confirmed)s - 1) / %(a_pair)s,
       now() - interval %(oldest)s + n * (interval %(oldest)s - interval %(newest)s) / %(a_pair)s
from generate_series(0, %(a_pair)s - 1) n, sl_node o, sl_node r where o.no_id <> r.no_id
"""
SEQLOG = """
insert into sl_seqlog (seql_seqid, seql_origin, seql_ev_seqno, seql_last_value)
select 3, 1, %(first)s + n * 10, n from generate_series(0, %(seqlog)s - 1) n
"""
LOG = """
insert into sl_log_2 (log_origin, log_txid, log_tableid, log_actionseq, log_tablenspname, log_tablerelname,
                      log_cmdtype, log_cmdupdncols, log_cmdargs)
select 1, %(txid)s + n, 1, n, 'public', 'account', 'I', 0, array['id', n::text, 'owner', 'somebody']
from generate_series(1, %(log)s) n
"""


@dataclass(frozen=True)
class Shape:
    """How much a catalog holds.

    Args:
        events: rows of sl_event, of all origins together; a hundredth of them is unconfirmed.
        confirmations: rows of sl_confirm.
    """

    events: int
    confirmations: int


def fill(cluster: SlonyCluster, node: int, shape: Shape) -> None:
    """Put a long past into a node's catalog: sl_log_1 is written, sl_log_2 can be emptied."""
    nodes = len(cluster.nodes)
    each = shape.events // nodes
    values = {
        "first": FIRST_SEQNO,
        "txid": FIRST_TXID,
        "step": TXIDS_A_SYNC,
        "other": OTHER_EVERY,
        "each": each,
        "confirmed": int(each * CONFIRMED_PART),
        "a_pair": shape.confirmations // (nodes * (nodes - 1)),
        "seqlog": int(each * SEQLOG_ROWS_A_SYNC),
        "log": int(each * LOG_ROWS_A_SYNC),
        "oldest": OLDEST,
        "newest": NEWEST,
    }
    # The parameters stand inside literals of intervals, so the client puts them in.
    with cluster.connect(node) as session, psycopg.ClientCursor(session) as cursor:
        for statement in (EMPTY, EVENTS, CONFIRMATIONS, SEQLOG, LOG):
            cursor.execute(statement.encode(), values if "%(" in statement else None)
        cursor.execute("select setval('sl_event_seq', (select max(ev_seqno) from sl_event))")
        cursor.execute("select setval('sl_log_status', 2)")
        cursor.execute("vacuum analyze")


DROP = 'drop database if exists "{}" with (force)'
CREATE = 'create database "{}" template "{}" strategy file_copy'


class Copies:
    """Databases made from a filled node's, each gone after its use."""

    def __init__(self, cluster: SlonyCluster, node: int) -> None:
        self._cluster = cluster
        self._template = cluster.database(node)

    @contextmanager
    def made(self, names: list[str]) -> Iterator[list[str]]:
        """Fresh copies under some names, each of a cluster with paths of its own; their addresses."""
        with psycopg.connect(self._cluster.server.conninfo(), autocommit=True) as session:
            for name in names:
                session.execute(DROP.format(name).encode())
                session.execute(CREATE.format(name, self._template).encode())
            for name in names:
                self._tell_apart(name)
            session.execute("checkpoint")
            try:
                yield [self._cluster.server.url(name) for name in names]
            finally:
                for name in names:
                    session.execute(DROP.format(name).encode())

    def _tell_apart(self, name: str) -> None:
        with self.session(name) as session:
            session.execute(
                "update sl_path set pa_conninfo = pa_conninfo || %s", (f" application_name={name}",)
            )
            session.execute("analyze")

    def session(self, name: str) -> psycopg.Connection[tuple[object, ...]]:
        """A session in a copy, each statement committed."""
        path = f'-c search_path="{self._cluster.schema}",public'
        return psycopg.connect(self._cluster.server.conninfo(name), autocommit=True, options=path)


CONTENTS = (
    "select ev_origin, count(*), md5(string_agg(ev_seqno || ev_type, ',' order by ev_seqno))"
    " from sl_event group by 1 order by 1",
    "select con_origin, con_received, count(*), min(con_seqno), max(con_seqno)"
    " from sl_confirm group by 1, 2 order by 1, 2",
    "select count(*), min(seql_ev_seqno) from sl_seqlog",
    "select (select count(*) from sl_log_1), (select count(*) from sl_log_2), last_value from sl_log_status",
)


def contents(copies: Copies, name: str) -> list[list[tuple[object, ...]]]:
    """What a cleanup has left: two that did the same have the same of it."""
    with copies.session(name) as session:
        return [session.execute(statement.encode()).fetchall() for statement in CONTENTS]
