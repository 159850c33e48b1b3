"""The extinction benchmark itself, on so few entries that its times say nothing."""

from __future__ import annotations

import json

import pytest

from benchmarks.extinction import main


@pytest.mark.long
def test_few_entries_go_by_one_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--entries", "1000", "--idle", "0.1", "--dialect", "sqlite"]) == 0
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    found = document["sqlite"]
    assert (found["records"], found["changelog_growth"], found["left_wrong"]) == (600, 1, 0)
    assert set(found["latency_ms"]) == {"idle", "bulk deletes", "scan"}
    assert document["keys_per_s"] > 0
