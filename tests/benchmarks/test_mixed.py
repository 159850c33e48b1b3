"""The benchmark of the mixed load itself, for seconds and on little: its times say nothing."""

from __future__ import annotations

import pytest

from benchmarks import mixed


def test_small_mixed_load_gives_its_figures_and_no_answer_of_5xx(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, number in {"STORES": 5, "SCHEDULES": 5, "FEW_JOBS": 5, "JOBS": 20, "AT_WORK": 1}.items():
        monkeypatch.setattr(mixed, name, number)
    few = ["--seconds", "2", "--rate", "30", "--idle-seconds", "1", "--loops-seconds", "1"]
    gates = mixed.measure(mixed.parse([*few, "--metadata", "sqlite", "--not-judged"]))
    said = capsys.readouterr().out
    for kind in ("get", "list", "change"):
        assert f"loaded  {kind}" in said
    errors, reads, loops = gates
    assert errors.is_met
    assert [gate.judged for gate in (errors, reads, loops)] == [True, False, True]
