"""Slices of a scan on a real Spark session, through the exchange that all jobs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.exchange.board import ExchangeLimits
from spark.exchange.dispatch import Exchange
from spark.exchange.lease import LeaseTerms
from spark.extinction.run import ScanUnit, scan_work
from spark.extinction.slices import Removed, begin_scan, cut_slices, finish_scan, read_slices
from spark.formats.extinction_filter import Filter
from spark.pool.pool import SparkPool
from spark.replication.consumer.extinctions import write_extinction
from tests.spark.replication.consumer_side import consumer_side, target_of
from tests.spark.replication.extinct_keys import SOUND, extinction, local, write
from tests.spark.replication.replica_tables import NOW_S, SHORT_WAITS

THIRD = Filter.parse({"modulo": {"offset": 0, "width": 2, "divisor": 3, "remainder": 0}})


@pytest.mark.postgresql
def test_workers_of_spark_remove_what_one_scan_would(
    pool: SparkPool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    found = extinction(None, None, found=THIRD)
    exchange = Exchange(pool, dispatchers=1, limits=ExchangeLimits(task_s=0.2))
    with consumer_side(target_of(request, "postgresql", tmp_path)) as side:
        write(side.conn, local([(number.to_bytes(2, "big"), b"value") for number in range(3_000)]))
        write_extinction(side.conn, found, now_s=NOW_S, expected=SOUND)
        begin_scan(side.conn, found.id, list(cut_slices(side.conn, found, rows=700)))
        slices = read_slices(side.conn, found)
        assert len(slices) == 5
        work = scan_work(side.conn.target, limits=SHORT_WAITS, application_name="lethe-test")
        try:
            with exchange.lease(work, LeaseTerms(workers=2)) as lease:
                while left := [each for each in read_slices(side.conn, found) if not each.is_done]:
                    outcomes = list(lease.map(ScanUnit(each, 200) for each in left))
                    assert [outcome.error for outcome in outcomes] == [None] * len(left)
        finally:
            exchange.close()
        assert finish_scan(side.conn, found.id, now_s=1) == Removed(1_000, 7_000, 0)
        assert len(side.entries()) == 2_000
        assert not any(found.covers(*place) for place in side.entries())
