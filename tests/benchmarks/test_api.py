"""The API benchmark itself, on a data set so small that its times say nothing."""

from __future__ import annotations

import pytest

from benchmarks.api import main


@pytest.mark.postgresql
@pytest.mark.long
def test_small_purge_beside_the_load_gives_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "20000", "--rounds", "1", "--idle-seconds", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("OK")
