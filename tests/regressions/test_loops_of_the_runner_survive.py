"""The metadata's PostgreSQL failed over, and for some seconds the service wrote to a server that was read-
only by then. That error was none of those that mean "away": it ended the thread that claims jobs, for good.
The process lived on, held its leases, and a `lethe worker` never took a job again; a running job failed
INTERNAL.
"""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from app.db import Database
from app.errors import MetadataUnavailable
from tests.app.jobs.workbench import Workbench, finish, kind


@pytest.mark.postgresql
def test_read_only_metadata_counts_as_away(postgresql_database: Database) -> None:
    def write() -> None:
        with postgresql_database.transaction() as db:
            db.execute(sa.text("set transaction read only"))
            db.execute(sa.text("update counters set value = value"))

    with pytest.raises(MetadataUnavailable):
        write()


def test_bug_in_a_round_ends_no_loop(bench: Workbench) -> None:
    broken = [True]

    def limits(_db: object) -> dict[str, int]:
        if broken:
            broken.clear()
            raise RuntimeError("a bug")
        return {}

    job_id = bench.submit()
    with bench.running(kind(finish), limits=limits) as runner:
        bench.until(job_id, "SUCCEEDED")
        assert runner.is_alive
    assert not broken
