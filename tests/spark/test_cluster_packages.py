"""Where tasks on a standalone cluster have Lethe's packages from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.jobs.engines.spark_service import _options
from app.settings import Settings, SparkSettings
from spark.pool.session import discard, start_session
from tests.journeys.spark_cluster import cluster_of


@pytest.mark.long
@pytest.mark.usefixtures("no_spark")
def test_task_reports_that_it_has_its_packages_from_the_zip(tmp_path: Path) -> None:
    """Also where the interpreter could find them in the checkout, as one with an editable install can."""
    with cluster_of(tmp_path / "cluster") as cluster:
        settings = Settings(data_dir=tmp_path / "data", spark=SparkSettings(master=cluster.url))
        started = start_session(_options(settings))
        try:
            context = started.session.sparkContext
            found = context.parallelize(range(8), 8).map(_whence).collect()
            host = context.getConf().get("spark.driver.host")
        finally:
            discard(started)
    assert {file for file, _ in found} == {"./lethe_spark.zip/spark/targets/__init__.py"}
    assert all(str(cluster.directory) in folder for _, folder in found)
    assert host == "127.0.0.1"


def _whence(_number: int) -> tuple[str | None, str]:
    import spark.targets

    return spark.targets.__file__, os.getcwd()
