"""The storm for as long as `make test` has; `make chaos` is the same for 15 minutes, of a new seed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.chaos.storm import storm

pytestmark = [pytest.mark.journey, pytest.mark.postgresql]

SECONDS = 40.0
SEED = 17


@pytest.mark.timeout(900)
def test_no_promise_is_broken_while_everything_goes_wrong(tmp_path: Path) -> None:
    """`LETHE_CHAOS_SEED` and `LETHE_CHAOS_SECONDS` draw another storm."""
    seed = int(os.environ.get("LETHE_CHAOS_SEED", SEED))
    seconds = float(os.environ.get("LETHE_CHAOS_SECONDS", SECONDS))
    assert storm(tmp_path, seconds=seconds, seed=seed) == []
