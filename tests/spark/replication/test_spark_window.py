"""Slices on a real Spark session, through the exchange that all jobs share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark.exchange.board import ExchangeLimits
from spark.exchange.dispatch import Exchange
from spark.exchange.lease import LeaseTerms
from spark.formats.part import Part, Prefix
from spark.pool.pool import SparkPool
from spark.replication.run import SlicedReader, slice_work, spool_folder
from spark.replication.supplier.slices import Bounds
from spark.replication.supplier.window import WindowReader
from tests.spark.replication.changelog_rows import (
    as_rows,
    csn_at,
    empty_changelog,
    put_rows,
    rows_of,
    target_of,
    windows_over,
)
from tests.spark.replication.replica_tables import DIALECTS, SHORT_WAITS

MIB = 1_048_576


@pytest.mark.parametrize("part", [None, Part.of([Prefix(b"db", b"key1"), Prefix(b"db", b"key77")])])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_spark_gives_what_one_reader_gives(
    pool: SparkPool, request: pytest.FixtureRequest, tmp_path: Path, dialect: str, part: Part | None
) -> None:
    request.param = dialect
    bounds = Bounds(rows_max=400, bytes_max=MIB, slice_rows=1_500, part=part)
    exchange = Exchange(pool, dispatchers=1, limits=ExchangeLimits(task_s=0.2))
    rows = rows_of((csn_at(number, 1 + number % 3) for number in range(9_000)), sizes=[None, 0, 60, 900])
    with empty_changelog(target_of(request, tmp_path)) as conn, spool_folder(tmp_path) as folder:
        put_rows(conn, rows)
        windows = windows_over(rows)
        work = slice_work(
            conn.target, limits=SHORT_WAITS, application_name="lethe-test", folder=folder, bounds=bounds
        )
        try:
            with exchange.lease(work, LeaseTerms(workers=2)) as lease:
                reader = SlicedReader(conn, windows, bounds=bounds, map_slices=lease.map, ahead=4)
                found = as_rows(batch.records() for batch in reader)
        finally:
            exchange.close()
        assert (found == rows) == (part is None)
        assert found == as_rows(WindowReader(conn, windows, rows_max=400, bytes_max=MIB, part=part))
        assert reader.rows_read == len(rows)
        assert reader.slices >= 5
        assert os.listdir(folder) == []
