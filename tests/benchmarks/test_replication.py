"""The replication benchmark itself, on so few changes that its times say nothing."""

from __future__ import annotations

import json

import pytest

from benchmarks.replication import main


@pytest.mark.long
def test_few_changes_arrive_and_each_is_read_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--changes", "600", "--rounds", "1", "--dialect", "sqlite"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["sqlite"]
    assert found["differing"] == 0
    assert found["reads_per_sent"] == 1.0
    assert found["single_per_s"] > 0
