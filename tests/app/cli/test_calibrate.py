"""`lethe spark-pool calibrate`: what its figures mean, when it refuses, and once for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.main import main
from app.cli.spark_pool.measuring import Found, Round, variables_of
from app.kit.spark.calibration import FILE_NAME, read_calibration
from app.settings import Settings, SparkSettings


def found(inline_s: list[float], spark_s: list[float], *, rows: int = 100_000) -> Found:
    made = Found(start_s=9.0, small_s={"INLINE": [0.1, 0.3, 0.2], "SPARK": [0.5, 0.3, 0.4]})
    made.rounds = [Round("INLINE", each, rows) for each in inline_s]
    made.rounds += [Round("SPARK", each, rows) for each in spark_s]
    return made


def test_speeds_are_of_the_median_round_and_the_floor_is_no_part_of_them() -> None:
    speeds = found([1.0, 9.0, 2.0], [1.2, 1.2, 5.0]).speeds("a case")
    assert speeds.inline_per_s == pytest.approx(50_000)
    assert speeds.spark_floor_s == pytest.approx(0.2)
    assert speeds.spark_per_s == pytest.approx(100_000)
    assert (speeds.start_s, speeds.case) == (9.0, "a case")


def test_a_small_job_that_is_quicker_on_spark_costs_nothing() -> None:
    made = found([1.0], [1.0])
    made.small_s = {"INLINE": [0.5], "SPARK": [0.4]}
    assert made.floor_s == 0.0


def test_service_that_measures_has_the_same_spark_and_no_threshold() -> None:
    spark = SparkSettings(
        cores=2,
        start="EAGER",
        min_rows=1,
        erase_min_bytes=1,
        window_min_changes=1,
        verify_min_bytes=1,
        java_options=["-Xss2m"],
        conf={"spark.sql.shuffle.partitions": "3"},
    )
    assert variables_of(Settings(spark=spark, runner_jobs_max=7, port=1)) == {
        "LETHE_SPARK__CORES": "2",
        "LETHE_SPARK__JAVA_OPTIONS": '["-Xss2m"]',
        "LETHE_SPARK__CONF": '{"spark.sql.shuffle.partitions": "3"}',
        "LETHE_RUNNER_JOBS_MAX": "7",
        "LETHE_SPARK__START": "LAZY",
    }


@pytest.mark.parametrize(
    ("variable", "value", "code"),
    [
        ("LETHE_SPARK__ENABLED", "false", "CALIBRATION_FAILED"),
        ("LETHE_SPARK__MASTER", "spark://cluster.example:7077", "CALIBRATION_FAILED"),
        ("LETHE_SPARK__MASTER", "nonsense", "SETTINGS_INVALID"),
    ],
)
def test_what_cannot_be_measured_ends_with_78_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    variable: str,
    value: str,
    code: str,
) -> None:
    monkeypatch.setenv(variable, value)
    assert main(["spark-pool", "calibrate", "--data-dir", str(tmp_path), "--json"]) == 78
    assert json.loads(capsys.readouterr().out)["code"] == code
    assert list(tmp_path.iterdir()) == []


def _calibrate(tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.cli.main", "spark-pool", "calibrate", "--json"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LETHE_")}
    return subprocess.run(
        [*command, "--data-dir", str(tmp_path / "data"), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=kept | {"TMPDIR": str(tmp_path)} | environment,
        check=False,
    )


@pytest.mark.long
@pytest.mark.journey
def test_calibration_is_kept_where_services_find_it(tmp_path: Path) -> None:
    done = _calibrate(tmp_path, "--stores", "2", "--rows", "2000", "--rounds", "1", LETHE_SPARK__CORES="2")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    settings = Settings(data_dir=tmp_path / "data", spark=SparkSettings(cores=2))
    kept = read_calibration(settings)
    assert (kept.state, shown["file"]) == ("USED", str(tmp_path / "data" / FILE_NAME))
    assert kept.calibration is not None
    assert kept.calibration.model_dump(mode="json") == shown["calibration"]
    assert os.listdir(tmp_path) == ["data"]


@pytest.mark.long
@pytest.mark.journey
def test_spark_that_does_not_come_up_writes_nothing_and_says_why(tmp_path: Path) -> None:
    done = _calibrate(tmp_path, "--stores", "1", "--rows", "2000", LETHE_SPARK__JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    problem = json.loads(done.stdout)
    assert problem["code"] == "CALIBRATION_FAILED"
    assert "NO_JAVA" in problem["detail"]
    assert not (tmp_path / "data" / FILE_NAME).exists()
