"""Which thresholds AUTO goes by: the table, this machine's measurement, the settings; and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.cli.spark_pool.calibrate import keep
from app.kit.spark.calibration import (
    Calibration,
    MeasuredSpeeds,
    ground_of,
    place_of,
    read_calibration,
    thresholds_now,
    thresholds_of,
)
from app.kit.spark.thresholds import CLUSTER, HERE, Speeds
from app.settings import Settings, SparkSettings

SLOWER = MeasuredSpeeds(
    inline_per_s=200_000, spark_per_s=100_000, spark_floor_s=0.1, start_s=10, case="6 stores of 60,000 rows"
)
FASTER = SLOWER.model_copy(update={"spark_per_s": 400_000})


def settings_of(data_dir: Path, **spark: Any) -> Settings:
    return Settings(data_dir=data_dir, spark=SparkSettings(**spark))


def calibrate(settings: Settings, measured: MeasuredSpeeds) -> Path:
    made = Calibration(
        made_at=datetime(2026, 11, 1, tzinfo=UTC), ground=ground_of(settings), kinds={"PURGE": measured}
    )
    return keep(settings, made)


@pytest.mark.parametrize("master", [None, "local[2]", "spark://127.0.0.1:7077", "spark://localhost:7077"])
def test_no_purge_goes_to_spark_by_itself_where_it_has_only_this_machine(
    tmp_path: Path, master: str | None
) -> None:
    settings = settings_of(tmp_path, master=master)
    assert thresholds_of(settings) == HERE
    assert (HERE["PURGE"].least, HERE["EXTINCTION"].least) == (None, None)


@pytest.mark.parametrize("master", ["spark://cluster:7077", "k8s://https://10.0.0.1:6443", "yarn"])
def test_cluster_keeps_its_threshold_and_its_start_counts(tmp_path: Path, master: str) -> None:
    assert thresholds_of(settings_of(tmp_path, master=master)) == CLUSTER
    assert (CLUSTER["PURGE"].least, CLUSTER["PURGE"].least_cold) == (100_000, 3_100_000)


def test_what_a_setting_names_holds_before_everything_else(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, min_rows=100_000)  # the default, but named
    calibrate(settings, FASTER)
    found = thresholds_of(settings)
    for kind in ("PURGE", "EXTINCTION"):
        assert (found[kind].least, found[kind].least_cold, found[kind].source) == (
            100_000,
            100_000,
            "SETTING",
        )
    assert found["WINDOW"] == HERE["WINDOW"]
    named = thresholds_of(settings_of(tmp_path, window_min_changes=7, erase_min_bytes=9, verify_min_bytes=11))
    assert (named["WINDOW"].least, named["ERASURE"].least, named["VERIFICATION"].least) == (7, 9, 11)


def test_setting_is_named_by_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_SPARK__MIN_ROWS", "5")
    assert thresholds_of(Settings(data_dir=tmp_path))["PURGE"].source == "SETTING"
    monkeypatch.delenv("LETHE_SPARK__MIN_ROWS")
    assert thresholds_of(Settings(data_dir=tmp_path))["PURGE"].source == "BUILT_IN"


def test_measurement_of_this_machine_takes_effect_without_a_restart(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    now = thresholds_now(settings)
    assert now()["PURGE"].source == "BUILT_IN"
    calibrate(settings, FASTER)
    found = now()["PURGE"]
    # 200,000 against 400,000 a second: 2.5 us are saved a row; 0.1 s of floor, and 10 s of a start.
    assert (found.least, found.least_cold, found.source) == (40_000, 4_040_000, "CALIBRATED")
    assert found.basis == FASTER.case
    calibrate(settings, SLOWER)
    assert (now()["PURGE"].least, now()["PURGE"].least_cold) == (None, None)


@pytest.mark.parametrize(
    ("inline", "spark", "is_never"),
    [(100.0, 50.0, True), (100.0, 100.0, True), (100.0, 109.9, True), (100.0, 110.1, False)],
)
def test_spark_must_be_faster_by_a_tenth(inline: float, spark: float, is_never: bool) -> None:
    assert (Speeds(inline, spark, 0.1, 10.0).least() is None) is is_never


def test_from_the_threshold_on_spark_is_done_first() -> None:
    """Whatever the figures: one unit below it is not, and the threshold is."""
    for inline, spark, floor_s, start_s in [
        (1e5, 3e5, 0.2, 9.0),
        (7.0, 9.0, 1.5, 0.0),
        (3e8, 5e8, 0.0, 12.0),
    ]:
        speeds = Speeds(inline, spark, floor_s, start_s)
        least = speeds.least(extra_s=start_s)
        assert least is not None

        def saved_s(size: int, speeds: Speeds = speeds) -> float:
            on_spark = size / speeds.spark_per_s + speeds.spark_floor_s + speeds.start_s
            return size / speeds.inline_per_s - on_spark

        assert saved_s(least) >= -1e-6
        assert least == 0 or saved_s(least - 1) < 1e-6


def _without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.pop(name)


def _of_purge(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["kinds"]["PURGE"].__setitem__(name, value)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_of_purge("spark_per_s", 0), "kinds.PURGE.spark_per_s"),
        (_of_purge("spark_per_s", -1), "kinds.PURGE.spark_per_s"),
        (_of_purge("inline_per_s", 1e13), "kinds.PURGE.inline_per_s"),
        (_of_purge("inline_per_s", 5e-324), "kinds.PURGE.inline_per_s"),
        (_of_purge("spark_per_s", 1e-300), "kinds.PURGE.spark_per_s"),
        (_of_purge("inline_per_s", "fast"), "kinds.PURGE.inline_per_s"),
        (_of_purge("spark_floor_s", -0.1), "kinds.PURGE.spark_floor_s"),
        (_of_purge("start_s", None), "kinds.PURGE.start_s"),
        (_of_purge("least", 1), "kinds.PURGE.least"),
        (lambda document: document["kinds"].update(OTHER=document["kinds"]["PURGE"]), "kinds.OTHER"),
        (lambda document: document["kinds"].clear(), "kinds"),
        (lambda document: document.update(format=2), "format"),
        (_without("ground"), "ground"),
        (lambda document: document["ground"].update(cores=64), "cores was 64"),
        (lambda document: document["ground"].update(pyspark="3.5.0"), "pyspark was 3.5.0"),
        (lambda document: document["ground"].update(master="yarn"), "master was yarn"),
        (lambda document: document["ground"].update(machine="an older one"), "machine was an older one"),
    ],
)
def test_file_that_does_not_fit_is_refused_whole_and_says_why(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], None], said: str
) -> None:
    settings = settings_of(tmp_path)
    place = calibrate(settings, FASTER)
    document = json.loads(place.read_text())
    spoil(document)
    place.write_text(json.dumps(document))
    found = read_calibration(settings)
    assert found.state == "REFUSED"
    assert said in (found.why or "")
    assert thresholds_of(settings) == HERE


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format": NaN}', b" " * 70_000]
)
def test_file_that_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    settings = settings_of(tmp_path)
    place_of(settings).write_bytes(content)
    found = read_calibration(settings)
    assert (found.state, bool(found.why)) == ("REFUSED", True)
    assert thresholds_of(settings) == HERE


def test_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    place_of(settings_of(tmp_path)).mkdir()
    assert read_calibration(settings_of(tmp_path)).state == "REFUSED"


def test_pipe_in_its_place_holds_up_nobody(tmp_path: Path) -> None:
    os.mkfifo(place_of(settings_of(tmp_path)))
    found = read_calibration(settings_of(tmp_path))
    assert (found.state, "no regular file" in (found.why or "")) == ("REFUSED", True)


def test_file_is_its_owners_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    place = calibrate(settings_of(tmp_path / "data"), FASTER)
    calibrate(settings_of(tmp_path / "data"), SLOWER)
    assert os.listdir(place.parent) == [place.name]
    assert place.stat().st_mode & 0o777 == 0o600
    assert read_calibration(settings_of(tmp_path / "data")).state == "USED"


def test_no_file_is_no_fault(tmp_path: Path) -> None:
    assert read_calibration(settings_of(tmp_path / "nowhere")).state == "NONE"
