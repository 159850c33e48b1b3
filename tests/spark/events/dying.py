"""A connection whose backend is ended after a given statement, as a crash would end it."""

from __future__ import annotations

import time
from typing import Any

from spark.targets.connection import Connection, Row
from spark.targets.dialects.dialect import Params
from tests.spark.events.catalogs import LoadedCatalog

GONE_TIMEOUT_S = 10.0


class DyingConnection(Connection):
    """Args:
    lives: statements that are executed before the backend is ended; BEGIN and COMMIT do not count, so
        the last statement of a transaction is the one before its COMMIT.
    """

    def __init__(self, node: LoadedCatalog, *, lives: int) -> None:
        super().__init__(node.target, application_name="lethe-dying")
        self._node = node
        self.left = lives
        [(self._pid,)] = super().execute("select pg_backend_pid()")

    def execute(self, sql: str, params: Params = None) -> list[Row]:
        """As Connection, and then perhaps the end."""
        rows = super().execute(sql, params)
        self.left -= 1
        if self.left == 0:
            end_backend(self._node, self._pid)
        return rows


def end_backend(node: LoadedCatalog, pid: int) -> None:
    """End a backend, and wait until it is gone with its locks."""
    with node.raw() as raw:
        raw.execute("select pg_terminate_backend(%s)", (pid,))
        limit = time.monotonic() + GONE_TIMEOUT_S
        while raw.execute("select 1 from pg_stat_activity where pid = %s", (pid,)).fetchall():
            assert time.monotonic() < limit, f"backend {pid} does not end"
            time.sleep(0.005)


def wait_for_lock(node: LoadedCatalog, application_name: str) -> int:
    """Wait until a session waits for a lock; its pid."""
    limit = time.monotonic() + GONE_TIMEOUT_S
    with node.raw() as raw:
        while True:
            rows: list[tuple[Any, ...]] = raw.execute(
                "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname ="
                " current_database() and starts_with(application_name, %s)",
                (application_name,),
            ).fetchall()
            if rows:
                return int(rows[0][0])
            assert time.monotonic() < limit, f"{application_name} waits for nothing"
            time.sleep(0.005)
