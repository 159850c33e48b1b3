"""A standalone cluster with a secret: who has it gets executors that encrypt, and `ps` does not show it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from spark.exchange.dispatch import Exchange
from spark.exchange.lease import LeaseTerms
from spark.pool.options import SparkOptions, default_cds_archive
from spark.pool.pool import PoolLimits, SparkPool
from tests.journeys.spark_cluster import Cluster
from tests.ports import free_port
from tests.spark.conftest import wait_until
from tests.spark.exchange.work import done, made_target, note, work_of

SECRET = "4f6c3b2a19087f6e5d4c3b2a19087f6e"
READY_S = 180.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_200), pytest.mark.usefixtures("no_spark")]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path / "cluster", free_port(), secret=SECRET)
    made.directory.mkdir()
    try:
        made.start(workers=1)
        yield made
    finally:
        made.stop()


def options_of(cluster: Cluster, folder: Path, secret: str) -> SparkOptions:
    file = folder / f"secret-{len(secret)}"
    file.write_text(secret)
    return SparkOptions(
        master=cluster.url,
        driver_host="127.0.0.1",
        driver_memory="512m",
        executor_memory="512m",
        java_options=("-XX:TieredStopAtLevel=1",),
        cds_archive=default_cds_archive(),
        encrypted=True,
        secret_file=file,
        local_dir=folder / "spark",
        start_timeout_s=READY_S,
    )


# With encryption pyspark hands rows over by a socket that it leaves to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_units_run_on_executors_that_have_the_secret_and_no_command_line_shows_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    pool = SparkPool(options_of(cluster, tmp_path, SECRET), limits=PoolLimits(slots=1, warm_up=False))
    exchange = Exchange(pool, dispatchers=1)
    try:
        pool.start()
        wait_until(lambda: pool.snapshot().state == "READY", within_s=READY_S, what="READY")
        target = made_target(tmp_path)
        with exchange.lease(work_of(target, note), LeaseTerms(workers=1)) as lease:
            assert len(list(lease.map(iter(range(5))))) == 5
        assert done(target) == list(range(5))
        shown = [line for line in _command_lines() if b"java" in line]
        assert len(shown) >= 4, "master, worker, driver and executor"
        assert not [line for line in shown if SECRET.encode() in line]
    finally:
        exchange.close(10)
        pool.stop(15)


def test_nobody_gets_executors_by_another_secret(cluster: Cluster, tmp_path: Path) -> None:
    wrong = SECRET[::-1] + "0"
    pool = SparkPool(options_of(cluster, tmp_path, wrong), limits=PoolLimits(slots=1, starts_max=1))
    try:
        pool.start()
        deadline = time.monotonic() + READY_S
        while pool.snapshot().state != "FAILED" and time.monotonic() < deadline:
            assert not cluster.executors()
            time.sleep(0.5)
        assert pool.snapshot().state == "FAILED"
    finally:
        pool.stop(15)


def _command_lines() -> Iterator[bytes]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            yield file.read_bytes()
