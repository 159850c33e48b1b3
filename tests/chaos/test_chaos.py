"""The storm until each kind of fault has had its turn; `make chaos` is 15 minutes of it, of a new seed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.storm import storm

pytestmark = [pytest.mark.journey, pytest.mark.postgresql]

SECONDS, SECONDS_LONG = 40.0, 90.0
SEED = 17


@pytest.mark.timeout(900)
@pytest.mark.parametrize("usual_s", [SECONDS, pytest.param(SECONDS_LONG, marks=pytest.mark.long)])
def test_no_promise_is_broken_while_everything_goes_wrong(tmp_path: Path, usual_s: float) -> None:
    """`LETHE_CHAOS_SEED` and `LETHE_CHAOS_SECONDS` draw another storm."""
    seed = int(os.environ.get("LETHE_CHAOS_SEED", SEED))
    seconds = float(os.environ.get("LETHE_CHAOS_SECONDS", usual_s))
    assert storm(tmp_path, seconds=seconds, seed=seed) == []
