"""What a cleanup says went has gone, whatever becomes of the server afterwards.

Commits of units do not wait for the disk. A server that is killed forgets those that nobody waited for: their
rows are back, their ledger rows are not, and a later cleanup takes them. But then nobody has been told.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from spark.events.catalog import read_catalog
from spark.events.cleaning.plan import plan_cleanup
from spark.events.unit import UnitJob, make_durable
from spark.targets.connection import target_now
from spark.targets.fence import raise_fence
from spark.targets.ledger import ensure_ledger, ledger_totals
from tests.postgresql_server import PostgresqlServer, scratch_directory
from tests.spark.events.catalogs import DATA, RECORDED_CLUSTER, LoadedCatalog, conninfo_of, load_dump
from tests.spark.events.cleaning import clean_up

pytestmark = pytest.mark.postgresql
JOB = UnitJob("job-1", 1, "cleanup")
LAZY = {"wal_writer_delay": "10s", "fsync": "off"}
"""Nobody writes the log before somebody waits for it; memory that the kernel has outlives a kill."""


@pytest.fixture
def server(postgresql_binaries: Path) -> Iterator[PostgresqlServer]:
    with scratch_directory() as directory:
        server = PostgresqlServer(postgresql_binaries, directory, settings=LAZY)
        server.start()
        try:
            yield server
        finally:
            server.stop()


def test_units_that_were_told_of_outlive_the_server(server: PostgresqlServer) -> None:
    node = LoadedCatalog(server.create_database("node"), RECORDED_CLUSTER)
    with psycopg.connect(conninfo_of(node.url)) as raw:
        load_dump(raw, (DATA / "fxc" / "n1.tables.sql.gz").read_bytes())
    with node.connect() as conn:
        catalog = read_catalog(conn, node.cluster)
        assert ensure_ledger(conn)
        raise_fence(conn, JOB.resource, token=JOB.token, owner=JOB.job_id)
        plan = plan_cleanup(conn, catalog, confirmed_before=target_now(conn))
        removed = clean_up(conn, plan, catalog, JOB)
        make_durable(conn, JOB)
        assert removed["EVENT"] == plan.to_remove["EVENT"] > 0
        left = node.rows()["sl_event"]
        server.kill9()
    server.start()
    assert node.rows()["sl_event"] == left
    with node.connect() as conn:
        assert ledger_totals(conn, JOB.job_id)["EVENT"].rows == removed["EVENT"]
