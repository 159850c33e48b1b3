"""The API benchmark itself, on a data set so small that its times say nothing."""

from __future__ import annotations

import pytest

from benchmarks import api


@pytest.mark.long
@pytest.mark.postgresql
def test_small_purge_beside_the_load_gives_a_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api, "WARM_UP_S", 0.3)
    monkeypatch.setattr(api, "STARTS", 3)
    assert api.main(["--rows", "20000", "--rounds", "1", "--idle-seconds", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("OK")
