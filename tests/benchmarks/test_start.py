"""The benchmark of a start runs."""

from __future__ import annotations

import pytest

from benchmarks.start import main


@pytest.mark.long
def test_it_tells_time_and_memory_of_both_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rounds", "1"]) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["fresh", "again", "libraries"]
    assert [line.split()[0] for line in lines[4:]] == ["ready", "processor", "idle"]
