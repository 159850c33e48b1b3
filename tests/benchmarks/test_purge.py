"""The purge benchmark itself, on data sets so small that its times say nothing."""

from __future__ import annotations

import pytest

from benchmarks.purge import main
from benchmarks.purge_shapes import SHAPES

IN_EACH_RUN = "dense-1m"  # the others have other numbers, and the same way


@pytest.mark.parametrize(
    "shape", [pytest.param(name, marks=pytest.mark.long if name != IN_EACH_RUN else ()) for name in SHAPES]
)
def test_small_data_set_is_left_the_same_by_both_sides(
    shape: str, postgresql_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--shape", shape, "--scale", "0.002", "--rounds", "1", "--no-writer"]
    assert main([*options, "--url", postgresql_url]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(shape)
    assert last.endswith("OK")
