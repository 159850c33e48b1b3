"""Purges of SymmetricDS with archives, on SQLite and PostgreSQL: rows, ledger and archive by the oracle."""

from __future__ import annotations

import contextlib

from lethe_client import Conflict

from tests.chaos.work import LABELS, Work
from tests.journeys.crashes import build_large
from tests.journeys.ground import (
    PURGED,
    Expected,
    add_store,
    assert_exact,
    assert_restored,
    connection_to,
    expect,
    purge_request,
)
from tests.oracles.symmetricds import Place, snapshot

ROWS = (150, 500)
UNIT_ROWS = 40
STEPS = dict(zip(("DATA", "EVENTS", "BATCHES"), PURGED, strict=True))


class Purges(Work):
    """A fresh store and a purge of it in each turn."""

    name = "purges"
    dialect = "sqlite"

    def place(self) -> Place:
        """Where the next store lies."""
        return Place(f"sqlite:///{self.directory}/{self.done}.db")

    def turn(self) -> None:
        """Exact rows and counts, an archive that verifies and gives back every row."""
        place = self.place()
        store = f"{self.name}-{self.done}"
        with self.fleet.guard:  # nobody kills the target meanwhile
            build_large(place, self.rng.randrange(10**6), rows=self.rng.randint(*ROWS))
            expected = expect(place, snapshot(place))
        add_store(self.client, store, place, labels=LABELS)
        request = purge_request(
            place, archive=True, max_rows_in_tx=UNIT_ROWS, rows_per_s=self.rng.choice([100, 300, 5_000])
        )
        job_id = self.client.purges.create(store, request).id
        if self.rng.random() < 0.3:
            self._pause(job_id)
        result = self.succeeded(job_id)
        with self.fleet.guard:
            assert_exact(place, expected, result)
        self._check_archive(place, expected, job_id)
        if place.dialect == "postgresql":
            self._check_ledger(place, expected, job_id)
        self.counts["rows"] += sum(expected.counts.values())
        self.counts["attempts"] += int(self.job(job_id).raw["attempt"])

    def _pause(self, job_id: str) -> None:
        """Pause it somewhere on its way, and let it go on; nothing may be lost by that."""
        with contextlib.suppress(Conflict):  # it has ended
            self.client.jobs.pause(job_id)
            self.over.wait(self.rng.random())
        with contextlib.suppress(Conflict):
            self.client.jobs.resume(job_id)

    def _check_archive(self, place: Place, expected: Expected, job_id: str) -> None:
        total = sum(expected.counts.values())
        archive = self.client.archives.get(job_id)
        assert (archive.counts, archive.rows) == ("EXACT", total)
        verified = self.succeeded(self.client.archives.verify(job_id).id)
        assert verified["rows"] == total
        file = self.directory / f"{job_id}.sqlite"
        restoring = self.client.archives.restore_into_file(job_id, str(file))
        assert self.succeeded(restoring.id)["rows"] == total
        assert_restored(file, place, expected)
        file.unlink()

    def _check_ledger(self, place: Place, expected: Expected, job_id: str) -> None:
        by_step = (
            "select step, sum(rows_affected)::bigint from lethe.unit_ledger where job_id = %s group by 1"
        )
        tokens = "select token from lethe.unit_ledger where job_id = %s order by committed_at, token"
        with self.fleet.guard, connection_to(place.url) as conn:
            found = dict(conn.execute(by_step, (job_id,)).fetchall())
            order = [row[0] for row in conn.execute(tokens, (job_id,)).fetchall()]
        assert {table: found.get(step, 0) for step, table in STEPS.items()} == expected.counts
        assert order == sorted(order), "a former holder has written after its successor"


class PostgresqlPurges(Purges):
    """The same in a schema of its own."""

    name = "pg-purges"

    def prepare(self) -> None:
        """One database for all."""
        self.url = self.fleet.targets.create_database("shops")

    def place(self) -> Place:
        """A schema that no turn has had."""
        return Place(self.url, schema=f"shop_{self.done}")
