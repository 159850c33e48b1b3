"""SymmetricDS beside a purge on MariaDB: resends and new batches at random moments."""

from __future__ import annotations

import threading
import time
from random import Random
from typing import Any

import pymysql

from tests.journeys.mariadb import ask, connected
from tests.mariadb_server import PrivateMariadb
from tests.oracles.symmetricds import Place, Rows

DEADLOCK = 1213
RESEND_SQL = "update sym_outgoing_batch set status = %s where batch_id = %s and status in ('OK', 'IG')"
NEW_BATCH_SQL = (
    "insert into sym_outgoing_batch (batch_id, node_id, channel_id, status, create_time) "
    "values (%s, 'n2', 'c', 'NE', now())"
)
NEW_EVENT_SQL = "insert into sym_data_event (data_id, batch_id, create_time) values (%s, %s, now())"


class Resending(threading.Thread):
    """SymmetricDS beside the purge: sets batches back and routes old rows into new ones, at random."""

    def __init__(self, server: PrivateMariadb, place: Place, rng: Random, before: Rows) -> None:
        super().__init__(daemon=True)
        self._server, self._place, self._rng = server, place, rng
        self._batches = [row["batch_id"] for row in before["outgoing_batch"]]
        self._data_ids = [row["data_id"] for row in before["data"]]
        self._ended = threading.Event()
        self._next_batch = 5_000_000
        self.routed: list[tuple[int, int]] = []
        self.waits_s: list[float] = []
        self.refused = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Work until told to end."""
        try:
            with connected(self._server, self._place) as connection:
                while not self._ended.is_set():
                    begun = time.monotonic()
                    self._act(connection)
                    self.waits_s.append(time.monotonic() - begun)
                    time.sleep(self._rng.uniform(0.0, 0.01))
        except BaseException as error:  # noqa: BLE001 -- shown by the test's own thread
            self.failure = error

    def _act(self, connection: Any) -> None:
        try:
            if self._rng.random() < 0.1:
                self._route(connection)
            else:
                status, batch = self._rng.choice(["NE", "RS", "ER"]), self._rng.choice(self._batches)
                ask(connection, RESEND_SQL, status, batch)
        except pymysql.OperationalError as error:
            if error.args[0] != DEADLOCK:
                raise
            connection.rollback()
            self.refused += 1

    def _route(self, connection: Any) -> None:
        first = self._rng.randrange(len(self._data_ids))
        chosen = self._data_ids[first : first + self._rng.randrange(1, 30)]
        self._next_batch += 1
        connection.begin()
        ask(connection, NEW_BATCH_SQL, self._next_batch)
        for data_id in chosen:
            ask(connection, NEW_EVENT_SQL, data_id, self._next_batch)
        connection.commit()
        self.routed += [(self._next_batch, data_id) for data_id in chosen]

    def finish(self) -> None:
        """End the work."""
        self._ended.set()
        self.join(30)
        assert self.failure is None, self.failure


def without_data(rows: Rows) -> set[int]:
    """Batches with an event whose data had gone before the purge: set back, they lack it all the same."""
    data = {row["data_id"] for row in rows["data"]}
    return {row["batch_id"] for row in rows["data_event"] if row["data_id"] not in data}
