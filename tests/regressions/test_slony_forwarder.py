"""A log switch on a node whose slon forwards the rows of another origin, and has to wait for its provider."""

from __future__ import annotations

import time
from contextlib import closing

from spark.events.catalog import read_catalog
from spark.events.cleaning.log_switch import read_log_status, start_switch, try_finish
from spark.events.cleaning.records import Blocked
from tests.slony_cluster import SlonyCluster
from tests.spark.events.catalogs import LoadedCatalog

WAIT_MAX_S = 20.0
WAITING = """
    select 1 from pg_stat_activity where datname = current_database() and state = 'idle in transaction'
        and application_name = 'slon.remoteWorkerThread_1'
        and query like 'select last_value from %sl_log_status'
"""


def test_slon_that_waits_for_its_provider_keeps_the_switch_of_its_node_open(slony: SlonyCluster) -> None:
    forwarder = LoadedCatalog(slony.url(2), slony.name)
    with closing(slony.connect(1, autocommit=False)) as provider, forwarder.connect() as conn:
        catalog = read_catalog(conn, slony.name)
        provider.execute("lock table sl_log_1, sl_log_2 in access exclusive mode")
        slony.run(1, "select createEvent(%s, 'SYNC', null)", slony.schema)
        give_up = time.monotonic() + WAIT_MAX_S
        while not slony.run(2, WAITING):
            assert time.monotonic() < give_up, "the slon of node 2 asks its provider for the rows of the SYNC"
            time.sleep(0.05)
        before = read_log_status(conn, catalog).status
        start_switch(conn, catalog)
        blocked = try_finish(conn, catalog)
        provider.rollback()
    slony.catch_up()
    assert not before.is_switching
    assert isinstance(blocked, Blocked)
    assert blocked.why == "OLD_TRANSACTION"
    assert ("slon.remoteWorkerThread_1", None) in [
        (item.application_name, item.backend_xid) for item in blocked.sessions
    ]
    assert slony.differing() == []
