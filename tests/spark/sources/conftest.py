"""Sources read on the one session of the worker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lethe_spark import register
from pyspark.sql import SparkSession

from spark.pool.errors import SparkJobFailed
from spark.pool.lease import Lease
from tests.spark.erase.conftest import samples  # noqa: F401 -- a fixture
from tests.spark.sources.archives import Archives
from tests.spark.targets.conftest import mysql, opened, postgresql, sqlite  # noqa: F401 -- fixtures


class Reading:
    """Reads sources within a lease."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        lease.run(register)

    def run(self, work: Callable[[SparkSession], Any]) -> Any:
        """What a function makes of the session."""
        return self.lease.run(work)

    def rows(self, source: str, **options: Any) -> list[dict[str, Any]]:
        """All rows of a source, by their columns."""
        return list(
            self.run(
                lambda session: [
                    row.asDict(recursive=True)
                    for row in session.read.format(source).options(**options).load().collect()
                ]
            )
        )

    def arrow(self, source: str, **options: Any) -> list[dict[str, Any]]:
        """All rows of a source by Arrow, which is quicker where there are many."""
        return list(
            self.run(
                lambda session: session.read.format(source).options(**options).load().toArrow().to_pylist()
            )
        )

    def refused(self, source: str, **options: Any) -> str:
        """What a source says that cannot be read."""
        with pytest.raises(SparkJobFailed) as failed:
            self.rows(source, **options)
        return str(failed.value.__cause__)


@pytest.fixture
def reading(lease: Lease) -> Reading:
    return Reading(lease)


@pytest.fixture
def archives(tmp_path: Path) -> Archives:
    return Archives(tmp_path / "archives")
