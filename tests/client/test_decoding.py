"""Members of answers that are no plain JSON values."""

from datetime import timedelta

import pytest
from lethe_client import UnexpectedAnswer
from lethe_client.decoding import decode
from lethe_client.results import SparkSlot


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("PT0S", timedelta(0)),
        ("PT1.2S", timedelta(seconds=1.2)),
        ("PT1M27S", timedelta(seconds=87)),
        ("P14DT7H54M21.6S", timedelta(days=14, hours=7, minutes=54, seconds=21.6)),
        ("P2D", timedelta(days=2)),
    ],
)
def test_duration_becomes_a_timedelta(text: str, span: timedelta) -> None:
    assert decode(SparkSlot, {"number": 1, "state": "LEASED", "leased_for": text}).leased_for == span


@pytest.mark.parametrize("value", ["", "P", "PT", "P1DT", "1.2", 1.2, True])
def test_what_is_no_duration_is_an_unexpected_answer(value: object) -> None:
    with pytest.raises(UnexpectedAnswer, match="leased_for is no ISO 8601 duration"):
        decode(SparkSlot, {"number": 1, "state": "LEASED", "leased_for": value})
