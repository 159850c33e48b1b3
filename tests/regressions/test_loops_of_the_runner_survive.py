"""The metadata's PostgreSQL failed over, and for some seconds the service wrote to a server that was read-
only by then. That error was none of those that mean "away": it ended the thread that claims jobs, for good.
The process lived on, held its leases, and a `lethe worker` never took a job again; a running job failed
INTERNAL.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from app.db import Database
from app.errors import MetadataUnavailable
from app.jobs.running.context import JobContext
from tests.app.jobs.workbench import Workbench, kind


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

    def limits(_db: object, _stores: object) -> dict[str, int]:  # asked while a job of a store is at work
        if broken:
            broken.clear()
            raise RuntimeError("a bug")
        return {}

    def work(context: JobContext) -> Mapping[str, Any]:
        while broken:
            context.check()
            time.sleep(0.01)
        return {}

    jobs = [bench.submit(), bench.submit()]
    with bench.running(kind(work), limits=limits) as runner:
        for job_id in jobs:
            bench.until(job_id, "SUCCEEDED")
        assert runner.is_alive
    assert not broken
