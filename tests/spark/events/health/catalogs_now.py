"""Recorded catalogs as if they had been recorded this moment, and a slon that is connected to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from spark.events.catalog import read_catalog
from spark.events.health.reading import read_health
from spark.events.health.records import NodeReading
from tests.spark.events.catalogs import LoadedCatalog

_TIMES = {
    "sl_event": "ev_timestamp",
    "sl_confirm": "con_timestamp",
    "sl_registry": "reg_timestamp",
}


FRESH = (
    "create temporary table moved on commit drop as"
    " select now() - interval '1 second' - max(ev_timestamp) as by from sl_event",
    *(f"update {table} set {column} = {column} + (select by from moved)" for table, column in _TIMES.items()),
    "update sl_components set co_starttime = now()",
)
"""Statements of one transaction that move all times by as much as makes the newest event a second old."""


def freshen(loaded: LoadedCatalog) -> None:
    """Let a catalog be of this moment."""
    loaded.execute(*FRESH)


@contextmanager
def slon_of(loaded: LoadedCatalog, node: int) -> Iterator[int]:
    """A session as the node's own slon has it, with all its threads; the pid."""
    with closing(loaded.raw(application_name="slon.local_listen")) as raw:
        pid = raw.info.backend_pid
        raw.execute("delete from sl_nodelock where nl_nodeid = %s and nl_conncnt = 0", (node,))
        raw.execute("insert into sl_nodelock values (%s, 0, %s)", (node, pid))
        raw.execute("update sl_components set co_connection_pid = %s", (pid,))
        yield pid


def look(loaded: LoadedCatalog) -> NodeReading:
    """Read a node as the product does."""
    with loaded.connect(read_only=True) as conn:
        return read_health(conn, read_catalog(conn, loaded.cluster))
