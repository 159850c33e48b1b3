"""The storm until each kind of fault has had its turn; `make chaos` is 15 minutes of it, of a new seed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.storm import PAUSE_S, storm

pytestmark = [pytest.mark.journey, pytest.mark.postgresql]

SECONDS, SECONDS_LONG = 20.0, 90.0
SHORT_PAUSE_S = (0.5, 2.0)
"""Each kind of fault has its turn all the same, closer to the one before."""
SEED = 37
"""Its first window is closed for 20 s: longer than any work may go on."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("usual_s", "pause_s"),
    [(SECONDS, SHORT_PAUSE_S), pytest.param(SECONDS_LONG, PAUSE_S, marks=pytest.mark.long)],
)
def test_no_promise_is_broken_while_everything_goes_wrong(
    tmp_path: Path, usual_s: float, pause_s: tuple[float, float]
) -> None:
    """`LETHE_CHAOS_SEED` and `LETHE_CHAOS_SECONDS` draw another storm."""
    seed = int(os.environ.get("LETHE_CHAOS_SEED", SEED))
    seconds = float(os.environ.get("LETHE_CHAOS_SECONDS", usual_s))
    assert storm(tmp_path, seconds=seconds, seed=seed, pause_s=pause_s) == []
