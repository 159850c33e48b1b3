"""In which order tests run, and which files one worker has together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

TESTS = Path(__file__).parent
# Long ones first, so that the workers end together; last those whose services live to the end of the run.
TURNS = {"chaos": 0, "journeys": 0, "pages": 0, "http": 3, "console": 3}
LONGEST = "test_openapi_conformance.py"
FIRST, SPARK, USUAL = -1, 1, 2
# Files whose tests lend slots of the shared pool: one worker has them all, as each would start a JVM of its
# own and warm it up. Those that want no JVM in their process (`no_spark`) are not among them.
ON_THE_SHARED_JVM = {
    *("spark/erase/test_run.py", "spark/erase/test_verify.py", "spark/exchange/test_run.py"),
    *("spark/extinction/test_oracle.py", "spark/extinction/test_spark_scan.py"),
    *("spark/replication/test_spark_digest.py", "spark/replication/test_spark_window.py"),
    *("spark/exchange/test_password_changed.py", "spark/targets/test_archive_on_spark.py"),
    *("spark/sources/test_archive.py", "spark/sources/test_certificates.py", "spark/sources/test_changes.py"),
    *("spark/sources/test_je.py", "spark/sources/test_queries.py", "spark/sources/test_random_queries.py"),
    *("spark/sources/test_slony_log.py", "spark/test_data_sources.py", "spark/test_pool_cancel.py"),
    *("spark/test_pool_death.py", "spark/test_pool_lease.py", "spark/test_pool_queue.py"),
    "spark/test_pool_recycling.py",
    *("spark/test_session.py", "spark/test_worker.py"),
}


def put_in_order(items: list[pytest.Item]) -> None:
    """By turns; tests of one turn stay in the order in which they were collected.

    Raises:
        AssertionError: a file has the shared JVM and does not stand with the others.
    """
    missing = {_path_of(item) for item in items if _has_the_shared_jvm(item)} - ON_THE_SHARED_JVM
    assert not missing, f"add to ON_THE_SHARED_JVM: {sorted(missing)}"
    items.sort(key=_turn_of)


def _path_of(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix()


def _has_the_shared_jvm(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    return "shared_pool" in fixtures and "no_spark" not in fixtures


def _turn_of(item: pytest.Item) -> int:
    path = _path_of(item)
    if item.path.name == LONGEST:
        return FIRST
    return SPARK if path in ON_THE_SHARED_JVM else TURNS.get(path.split("/")[0], USUAL)


class ByFiles(LoadFileScheduling):
    """A file is one worker's, and so are all files of the shared JVM together."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "the shared JVM" if file.removeprefix("tests/") in ON_THE_SHARED_JVM else file


def scheduler_of(config: pytest.Config, log: Any) -> ByFiles | None:
    """The one of `--dist loadfile`; None: xdist's own."""
    return ByFiles(config, log) if config.getvalue("dist") == "loadfile" else None
