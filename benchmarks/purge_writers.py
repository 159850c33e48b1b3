"""A writer beside the purge, as SymmetricDS is one: captures rows, changes batches, times each write."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from random import Random

import psycopg

INSERT_SQL = (
    "insert into sym_data (table_name, event_type, row_data, trigger_hist_id, channel_id, create_time) "
    "values ('item', 'I', '\"1\"', 1, 'default', localtimestamp)"
)
# The batch's own status again: it takes the row lock of a real change and leaves the purge's outcome alone.
UPDATE_SQL = (
    "update sym_outgoing_batch set status = status, last_update_time = localtimestamp where batch_id = %s"
)
PAUSE_S = 0.002
SAMPLES_MAX = 1_000_000


@dataclass(frozen=True)
class Latency:
    """Percentiles of one kind of write, in milliseconds."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, samples_s: list[float]) -> Latency:
        """Percentiles by nearest rank; zeros where nothing was written."""
        ordered = sorted(samples_s) or [0.0]
        ranks = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 for share in (0.5, 0.99, 1)]
        return cls(len(samples_s), *ranks)


@dataclass
class Writer:
    """Writes from its own thread and connection between `start` and `finish`.

    Updates go to batches of the whole table, so most of them meet batches that the purge is about to lock.
    """

    conninfo: str
    highest_batch: int
    seed: int = 7
    inserts_s: list[float] = field(default_factory=list)
    updates_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer")
        self._failure: Exception | None = None

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def finish(self) -> tuple[Latency, Latency]:
        """Stop, and return the latencies of inserts and of status updates."""
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return Latency.of(self.inserts_s), Latency.of(self.updates_s)

    def _write(self) -> None:
        rng = Random(self.seed)
        try:
            with psycopg.connect(self.conninfo, autocommit=True) as connection:
                while not self._stop.wait(PAUSE_S) and len(self.inserts_s) < SAMPLES_MAX:
                    self.inserts_s.append(_timed(connection, INSERT_SQL, ()))
                    batch = rng.randrange(1, self.highest_batch + 1)
                    self.updates_s.append(_timed(connection, UPDATE_SQL, (batch,)))
        except psycopg.Error as exc:  # a thread's error would be lost: finish() raises it
            self._failure = exc


def _timed(connection: psycopg.Connection[tuple[object, ...]], sql: str, values: tuple[int, ...]) -> float:
    begun = time.perf_counter()
    connection.execute(sql.encode(), values)
    return time.perf_counter() - begun
