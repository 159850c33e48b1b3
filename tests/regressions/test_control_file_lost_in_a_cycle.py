"""Somebody removed the control file of an environment, or put a damaged copy in its place, between rounds.
The round wrote nothing, rightly, but the whole cycle FAILED, though the next claim would have made the file
anew from the metadata.
"""

import pytest

from spark.erase.calls.calls import Refusal, RefusalCode
from tests.app.erase.conftest import erasers, log  # noqa: F401 -- fixtures
from tests.app.erase.erasers import Erasers
from tests.app.erase.fake_hands import FakeLog


@pytest.mark.parametrize("found", ["CONTROL_FILE_MISSING", "CONTROL_FILE_INVALID"])
def test_cycle_claims_anew_and_goes_on(
    erasers: Erasers,  # noqa: F811
    log: FakeLog,  # noqa: F811
    found: str,
) -> None:
    log.refuse("round", 0, Refusal(RefusalCode.CONTROL_FILE_INVALID, "as it was found", ref=found))
    erasers.begin()
    erasers.run(until_s=100)
    assert erasers.cycle().state == "COMPLETE"
    first, *later = [call.epoch for call in log.rounds_of(0)]
    assert all(epoch > first for epoch in later)
