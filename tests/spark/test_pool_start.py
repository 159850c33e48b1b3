"""Starts that do not work: reported with their reason, never waited for, and nothing is left of them."""

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spark.pool.errors import PoolFailed, PoolStopped, SparkStartFailed
from spark.pool.options import SparkOptions
from spark.pool.pool import PoolLimits, SparkPool
from spark.pool.session import start_session
from tests.spark.conftest import spark_options, wait_until

pytestmark = pytest.mark.usefixtures("no_spark")


def _java_that(directory: Path, script: str) -> Path:
    """A Java home whose java is a shell script."""
    java = directory / "java-home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java.parent.parent


def _processes_that_name(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found += [f"{entry.name} {command}"] if text in command else []
    return found


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 3", "EXITED"),
        ("echo 'Error: UnsupportedClassVersionError: too old' >&2; exit 1", "NO_JAVA"),
        ("exec sleep 3000", "TIMEOUT"),
    ],
)
def test_jvm_that_does_not_come_up_is_a_typed_error_and_no_process(
    tmp_path: Path, script: str, reason: str
) -> None:
    options = replace(
        spark_options(tmp_path / "spark"), java_home=_java_that(tmp_path, script), start_timeout_s=2.0
    )
    began = time.monotonic()
    with pytest.raises(SparkStartFailed) as failed:
        start_session(options)
    assert failed.value.reason == reason
    assert time.monotonic() - began < 10
    assert _processes_that_name(str(tmp_path)) == []
    assert [path.name for path in (tmp_path / "spark").iterdir()] == ["spark.log"]


def test_missing_java_fails_the_pool_with_the_reason(tmp_path: Path) -> None:
    pool = SparkPool(replace(spark_options(tmp_path), java_home=tmp_path / "nowhere"))
    began = time.monotonic()
    pool.start()
    assert time.monotonic() - began < 0.5
    wait_until(lambda: pool.snapshot().state == "FAILED", within_s=10, what="FAILED")
    with pytest.raises(PoolFailed, match="no java at"):
        pool.lease(job_id="a", job_class="BULK")
    pool.stop()
    assert pool.snapshot().state == "STOPPED"


def test_master_that_cannot_be_is_told_after_one_try(tmp_path: Path) -> None:
    pool = SparkPool(replace(spark_options(tmp_path), master="nonsense://here"))
    pool.start()
    wait_until(lambda: pool.snapshot().state == "FAILED", within_s=60, what="FAILED")
    snapshot = pool.snapshot()
    pool.stop()
    assert snapshot.failed_rebuilds == 1
    assert snapshot.last_error is not None
    assert snapshot.last_error.startswith("BAD_MASTER")


def test_three_failed_starts_end_in_failed_and_send_the_waiting_away(tmp_path: Path) -> None:
    pool = SparkPool(
        replace(spark_options(tmp_path), java_home=_java_that(tmp_path, "exit 3")), limits=PoolLimits(slots=1)
    )
    pool.start()
    refused: list[str] = []

    def wait_for_lease() -> None:
        with pytest.raises(PoolFailed) as failed:
            pool.lease(job_id="a", job_class="BULK")
        refused.append(failed.value.detail)

    thread = threading.Thread(target=wait_for_lease)
    thread.start()
    wait_until(lambda: pool.snapshot().state == "FAILED", within_s=30, what="FAILED")
    thread.join(5)
    assert pool.snapshot().failed_rebuilds == 3
    assert len(refused) == 1
    assert "EXITED" in refused[0]
    pool.start()  # an administrator tries again
    assert pool.snapshot().state == "STARTING"
    pool.stop()


def test_stop_while_starting_ends_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    options = replace(
        spark_options(tmp_path), java_home=_java_that(tmp_path, "exec sleep 3000"), start_timeout_s=600
    )
    pool = SparkPool(options)
    pool.start()
    wait_until(lambda: bool(_processes_that_name("sleep 3000")), within_s=10, what="the JVM is being started")
    refused: list[type[BaseException]] = []

    def wait_for_lease() -> None:
        with pytest.raises(PoolStopped) as stopped:
            pool.lease(job_id="a", job_class="BULK")
        refused.append(type(stopped.value))

    thread = threading.Thread(target=wait_for_lease)
    thread.start()
    wait_until(lambda: len(pool.snapshot().queue) == 1, within_s=5, what="a lease waits")
    began = time.monotonic()
    pool.stop(10)
    assert time.monotonic() - began < 3
    thread.join(5)
    assert refused == [PoolStopped]
    assert pool.snapshot().state == "STOPPED"
    assert _processes_that_name("sleep 3000") == []


def test_options_travel_between_processes() -> None:
    import pickle

    options = SparkOptions(master="local[3,4]", conf={"spark.ui.enabled": "true"})
    assert pickle.loads(pickle.dumps(options)) == options
