"""Resends against a purge: a database whose units can be stopped one by one, and the losses at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import psycopg

from tests.journeys.ground import CUTOFF, connection_to
from tests.oracles.symmetricds import Place, Row, Rows, build

BATCHES = 24
ROWS_IN_BATCH = 20
DELIVERED = ("OK", "IG")
OLD = CUTOFF - timedelta(days=1)

Loss = tuple[int, str | None, int, str]


def build_stepped(place: Place) -> None:
    """Old delivered batches of equal size, one after the other: a unit of ROWS_IN_BATCH rows is one batch.

    Batch 1 belongs to a node that is not enabled; the newest batch and row stay by rule.
    """
    last = BATCHES + 1
    rows: Rows = {"data": [], "data_event": [], "outgoing_batch": []}
    for batch in range(1, last + 1):
        node, status = ("gone", "NE") if batch == 1 else ("n1", "OK")
        rows["outgoing_batch"].append(_batch(batch, node, status))
        for data_id in data_of(batch):
            rows["data"].append(_data(data_id))
            rows["data_event"].append({"data_id": data_id, "batch_id": batch, "create_time": OLD})
    nodes = ("n1", "n2")
    rows["node"] = [
        {"node_id": node, "node_group_id": "g", "external_id": node, "sync_enabled": 1} for node in nodes
    ]
    build(place, rows)


def data_of(batch: int) -> range:
    """The ids of a batch's data in the stepped database."""
    return range((batch - 1) * ROWS_IN_BATCH + 1, batch * ROWS_IN_BATCH + 1)


def _batch(batch: int, node: str, status: str) -> Row:
    return {"batch_id": batch, "node_id": node, "channel_id": "c", "status": status, "create_time": OLD}


def _data(data_id: int) -> Row:
    text: Row = {"table_name": "item", "event_type": "I", "row_data": f'"{data_id}"', "trigger_hist_id": 1}
    return {"data_id": data_id, "channel_id": "c", "create_time": OLD, **text}


RESEND_SQL = "update sym_outgoing_batch set status = %s where batch_id = %s and status in ('OK', 'IG')"
NEW_BATCH_SQL = (
    "insert into sym_outgoing_batch (batch_id, node_id, channel_id, status, create_time) "
    "values (%s, 'n2', 'c', 'NE', localtimestamp)"
)
NEW_EVENTS_SQL = (
    "insert into sym_data_event (data_id, batch_id, create_time) "
    "select data_id, %s, localtimestamp from unnest(%s::bigint[]) data_id"
)


@dataclass
class Resender:
    """SymmetricDS as far as a purge meets it: sets batches back, and routes old rows into new batches.

    Attributes:
        longest_s: the longest time that one of its transactions waited.
        routed: the events that it added, as (batch, data).
    """

    connection: psycopg.Connection[Any]
    longest_s: float = 0.0
    count: int = 0
    routed: list[tuple[int, int]] = field(default_factory=list)
    next_batch: int = 5_000_000

    def resend(self, batch: int, status: str = "NE") -> bool:
        """Set a delivered batch back; False: it is gone, or was not delivered."""
        with self._measured():
            return self.connection.execute(RESEND_SQL, (status, batch)).rowcount > 0

    def route(self, data_ids: range | list[int]) -> int:
        """Put old rows into a new batch of another node; its id."""
        self.next_batch += 1
        batch = self.next_batch
        with self._measured(), self.connection.transaction():
            self.connection.execute(NEW_BATCH_SQL, (batch,))
            self.connection.execute(NEW_EVENTS_SQL, (batch, list(data_ids)))
        self.routed += [(batch, data_id) for data_id in data_ids]
        return batch

    @contextmanager
    def _measured(self) -> Iterator[None]:
        begun = time.monotonic()
        yield
        self.longest_s = max(self.longest_s, time.monotonic() - begun)
        self.count += 1


def losses(before: Rows, after: Rows, routed: list[tuple[int, int]]) -> list[Loss]:
    """What undelivered batches of the end miss of the data and events that they had, as the job lists it.

    Args:
        before: the database before the purge.
        after: the database after it.
        routed: events that were added meanwhile, as (batch, data).
    """
    had = [(row["batch_id"], row["data_id"]) for row in before["data_event"]] + routed
    data_before = {row["data_id"] for row in before["data"]}
    data_after = {row["data_id"] for row in after["data"]}
    events_after = {(row["batch_id"], row["data_id"]) for row in after["data_event"]}
    events_of: dict[int, list[int]] = {}
    for batch, data_id in had:
        events_of.setdefault(batch, []).append(data_id)
    found: list[Loss] = []
    for row in after["outgoing_batch"]:
        batch, node = row["batch_id"], row["node_id"]
        if row["status"] is None or row["status"] in DELIVERED:
            continue
        mine = events_of.get(batch, [])
        left = [data_id for data_id in mine if (batch, data_id) in events_after]
        if mine and not left:
            found.append((batch, node, 0, "EVENTS_REMOVED"))
            continue
        assert len(left) == len(mine), f"batch {batch} has lost some of its events and kept others"
        lost = [data_id for data_id in left if data_id in data_before and data_id not in data_after]
        if lost:
            found.append((batch, node, len(lost), "DATA_REMOVED"))
    return sorted(found)


def never_had_events(before: Rows, routed: list[tuple[int, int]]) -> set[int]:
    """Batches that had nothing to lose; set back, they are listed all the same, with no rows.

    What a delivered batch held before is noted nowhere: that it was empty cannot be told from a loss.
    """
    had = {row["batch_id"] for row in before["data_event"]} | {batch for batch, _ in routed}
    return {row["batch_id"] for row in before["outgoing_batch"]} - had


def listed(result: dict[str, Any]) -> list[Loss]:
    """RESENT_AFTER_PURGE of a result."""
    items = result["resent_after_purge"]["items"]
    assert result["resent_after_purge"]["count"] == len(items)
    return sorted((item["batch_id"], item["node_id"], item["rows"], item["cause"]) for item in items)


class StressThread(threading.Thread):
    """Resends and routes at random until it is told to end."""

    def __init__(self, place: Place, rng: Random, batches: list[int], data_ids: list[int]) -> None:
        super().__init__(daemon=True)
        self._place, self._rng, self._batches, self._data_ids = place, rng, batches, data_ids
        self._ended = threading.Event()
        self.resender: Resender | None = None
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Work."""
        try:
            with connection_to(self._place.url) as connection:
                self.resender = Resender(connection)
                while not self._ended.is_set():
                    self._act(self.resender)
                    time.sleep(self._rng.uniform(0.0, 0.01))
        except BaseException as error:  # noqa: BLE001 -- shown by the test's own thread
            self.failure = error

    def _act(self, resender: Resender) -> None:
        if self._rng.random() < 0.1:
            first = self._rng.randrange(len(self._data_ids))
            resender.route(self._data_ids[first : first + self._rng.randrange(1, 30)])
        else:
            resender.resend(self._rng.choice(self._batches), self._rng.choice(["NE", "RS", "ER"]))

    def finish(self) -> Resender:
        """End the work; what it did."""
        self._ended.set()
        self.join(30)
        assert self.failure is None, self.failure
        assert self.resender is not None
        return self.resender
