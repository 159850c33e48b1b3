"""Settings of the processes: options win over the environment, nonsense is a configuration error."""

import json

import pytest

from app.cli.service.process import run_process
from app.settings import Settings


def test_option_wins_over_the_environment_and_the_exit_code_is_passed_on(
    monkeypatch, capsys, tmp_path
) -> None:
    monkeypatch.setenv("LETHE_PORT", "1111")
    monkeypatch.setenv("LETHE_LABELS", "from-environment")
    seen: list[Settings] = []

    def process(settings: Settings) -> int:
        seen.append(settings)
        return 75

    given = {"data_dir": tmp_path, "port": 2222, "host": None, "labels": None}
    assert run_process("serve", process, given, json=True) == 75
    [settings] = seen
    assert (settings.port, settings.host, settings.labels) == (2222, "127.0.0.1", ["from-environment"])
    assert json.loads(capsys.readouterr().out) == {"command": "serve", "exit_code": 75}


@pytest.mark.parametrize("value", ["no-number", "70000"])
def test_setting_out_of_its_range_ends_with_78_before_anything_starts(monkeypatch, capsys, value) -> None:
    monkeypatch.setenv("LETHE_PORT", value)

    def process(_settings: Settings) -> int:
        raise AssertionError("it was started")

    assert run_process("serve", process, {}, json=True) == 78
    streams = capsys.readouterr()
    assert json.loads(streams.out)["code"] == "SETTINGS_INVALID"
    assert "port" in streams.err


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("LETHE_SPARK__CONF", "spark.ui.enabled=true", "LETHE_SPARK__CONF"),
        ("LETHE_SPARK__JAVA_OPTIONS", "-Xss1m", "LETHE_SPARK__JAVA_OPTIONS"),
        ("LETHE_SPARK__SLOT", "2", "spark.slot"),
        ("LETHE_SPARK__MASTER", "mesos://a:1", "spark.master"),
    ],
)
def test_spark_setting_that_is_none_ends_with_78_and_is_named(
    monkeypatch, capsys, variable, value, said
) -> None:
    monkeypatch.setenv(variable, value)

    def process(_settings: Settings) -> int:
        raise AssertionError("it was started")

    assert run_process("serve", process, {}, json=True) == 78
    streams = capsys.readouterr()
    assert json.loads(streams.out)["code"] == "SETTINGS_INVALID"
    assert said in streams.err
