"""A node whose server loses its last transactions between a first copy and the SYNC behind it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing, suppress

import psycopg
import pytest

from spark.events.feed.errors import NeedsTotal
from spark.targets.connection import Target
from tests.replica_feed import agrees, cursor_at, feed_once
from tests.slony_cluster import SlonyCluster, lone_node, slony_server

pytestmark = pytest.mark.slony
LAZY = {"wal_writer_delay": "10s"}
"""With synchronous_commit off: what was committed is lost for so long."""
RECOVERY_MAX_S = 60.0


def crash(cluster: SlonyCluster) -> None:
    """Kill one backend: the server recovers from its log, and its postmaster stays."""
    with closing(cluster.connect(1)) as session, suppress(psycopg.OperationalError):
        os.kill(session.info.backend_pid, signal.SIGKILL)
        session.execute("select 1")
    deadline = time.monotonic() + RECOVERY_MAX_S
    while True:
        try:
            cluster.run(1, "select 1")
        except psycopg.OperationalError as away:
            if time.monotonic() > deadline:
                words = f"no recovery in {RECOVERY_MAX_S:g} s: {away}\n{cluster.server.tail()}"
                raise AssertionError(words) from away
            time.sleep(0.05)
        else:
            return


def test_a_server_that_has_recovered_from_a_crash_needs_a_total_until_a_sync_was_applied(
    need_slony_programs: None, sqlite_place: Target
) -> None:
    """The story: a backend was killed, and the server lost what it had not flushed. The copy had it. The next
    transactions had the same numbers: they came in no unit, as "the copy has them"."""
    with slony_server(LAZY) as (server, directory):
        node = lone_node(server, directory)
        node.run(1, "checkpoint")
        node.run(1, "insert into account values (77, 'lost', 1)")
        assert feed_once(sqlite_place, node).life is not None
        crash(node)
        assert node.run(1, "select id from account") == []
        node.run(1, "insert into account values (1, 'since', 1)")
        node.sync(1)
        with pytest.raises(NeedsTotal, match="crash"):
            feed_once(sqlite_place, node)
        feed_once(sqlite_place, node, first_copy=True, job_id="job_2")
        agrees(sqlite_place, node)
        node.sync(1)
        feed_once(sqlite_place, node)
        found = cursor_at(sqlite_place)
        assert found is not None
        assert found.life is None
