"""Kills at random moments of a purge with archive, and what must be true when it has succeeded after all."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from lethe_client import Lethe, LetheError

from tests.journeys.ground import (
    PURGED,
    Expected,
    add_store,
    assert_exact,
    assert_restored,
    connection_to,
    expect,
    in_the_past,
    purge_request,
)
from tests.journeys.service import succeeded
from tests.oracles.symmetricds import Place, build, random_database, snapshot

ROWS = 4_000
UNIT_ROWS = 100
# So slow that several kills meet the same purge; more than a third of the time is still inside transactions.
ROWS_PER_S = 1_300
# Retries must not outlast the patience of a test.
CRASHING: Mapping[str, str] = {"LETHE_JOB_RETRY_BACKOFF_MAX_S": "1"}

Killer = Callable[[], None]


def build_large(place: Place, seed: int, *, rows: int = ROWS) -> None:
    """A database whose purge lasts some seconds, with all edge rows."""
    build(place, in_the_past(random_database(Random(seed), place.version, rows=rows)))


@dataclass
class CrashedPurge:
    """One purge that is killed again and again.

    Attributes:
        runs_on: the labels of the runners that may have it.
        kills: by the name of the killer; only those that met the job while it was running count.
    """

    client: Lethe
    store: str
    place: Place
    directory: Path
    rng: Random
    runs_on: tuple[str, ...] = ()
    kills: Counter[str] = field(default_factory=Counter)
    job_id: str = ""

    def run(self, killers: Mapping[str, Killer], *, kills: int) -> None:
        """Purge with up to `kills` kills, wait for SUCCEEDED and check everything.

        Args:
            killers: each kills and sees to it that what was killed comes back.
            kills: at most so many.
        """
        add_store(self.client, self.store, self.place, runs_on=list(self.runs_on))
        expected = expect(self.place, snapshot(self.place))
        request = purge_request(self.place, archive=True, max_rows_in_tx=UNIT_ROWS, rows_per_s=ROWS_PER_S)
        self.job_id = self.client.purges.create(self.store, request).id
        names = sorted(killers)
        self.rng.shuffle(names)
        while self.kills.total() < kills and self._is_running():
            time.sleep(self.rng.uniform(0.0, 0.7))
            if self._state() == "RUNNING":
                name = names[self.kills.total() % len(names)]
                killers[name]()
                self.kills[name] += 1
        result = succeeded(self.client, self.job_id)
        self.check(expected, result)

    def _state(self) -> str:
        try:
            return self.client.jobs.get(self.job_id).state
        except LetheError:  # the metadata may be away as well
            return "UNKNOWN"

    def _is_running(self, timeout_s: float = 60.0) -> bool:
        """Wait until a runner has the job; False: it has ended."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            state = self._state()
            if state == "RUNNING":
                return True
            if state in ("SUCCEEDED", "FAILED", "ABORTED"):
                return False
            time.sleep(0.02)
        raise AssertionError(f"{self.job_id} does not run: {self._state()}")

    def check(self, expected: Expected, result: dict[str, Any]) -> None:
        """Rows, counts and archive are exact."""
        assert_exact(self.place, expected, result)
        total = sum(expected.counts.values())
        archive = self.client.archives.get(self.job_id)
        assert archive.counts == "EXACT"
        assert archive.rows == total == result["archive"]["rows"]
        valid = [file for file in archive.file_list if file.state == "VALID"]
        assert sum(file.rows or 0 for file in valid) == total
        verified = succeeded(self.client, self.client.archives.verify(self.job_id).id)
        assert verified["rows"] == total
        file = self.directory / f"{self.job_id}.sqlite"
        restored = succeeded(self.client, self.client.archives.restore_into_file(self.job_id, str(file)).id)
        assert restored["rows"] == total
        assert_restored(file, self.place, expected)
        if self.place.dialect == "postgresql":
            self._check_ledger(expected)

    def _check_ledger(self, expected: Expected) -> None:
        query = (
            "select step, sum(rows_affected)::bigint from lethe.unit_ledger where job_id = %s group by step"
        )
        with connection_to(self.place.url) as connection:
            found = dict(connection.execute(query, (self.job_id,)).fetchall())
        steps = dict(zip(PURGED, ("DATA", "EVENTS", "BATCHES"), strict=True))
        assert {table: found.get(step, 0) for table, step in steps.items()} == expected.counts


def terminate_one(url: str, rng: Random, *, like: str) -> None:
    """End one backend, as an operator or a network does; none where there is none."""
    try:
        with connection_to(url) as connection:
            rows = connection.execute(
                "select pid from pg_stat_activity where application_name like %s order by pid", (like,)
            ).fetchall()
            if rows:
                connection.execute("select pg_terminate_backend(%s)", (rng.choice(rows)[0],))
    except psycopg.OperationalError:
        return
