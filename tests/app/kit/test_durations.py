"""ISO 8601 durations: read as the standard says, written so that they read the same."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from app.kit.durations import Duration, duration_of, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("PT15M", timedelta(minutes=15)),
        ("P25D", timedelta(days=25)),
        ("PT0S", timedelta(0)),
        ("P2W", timedelta(weeks=2)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("PT0.000001S", timedelta(microseconds=1)),
        ("PT90M", timedelta(hours=1, minutes=30)),
    ],
)
def test_duration_is_read(text: str, span: timedelta) -> None:
    assert parse_duration(text) == span


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "15M", "PT15", "P1M", "P1Y", "-PT1M", "PT-1M", "pt1m", "PT1M ", "PT1H1H", "P1DT"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an ISO 8601 duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(0), "PT0S"),
        (timedelta(days=25), "P25D"),
        (timedelta(minutes=90), "PT1H30M"),
        (timedelta(days=1, seconds=1), "P1DT1S"),
        (timedelta(microseconds=1), "PT0.000001S"),
        (timedelta(seconds=59, microseconds=123456), "PT59.123456S"),
        (timedelta(seconds=1, microseconds=500_000), "PT1.5S"),
    ],
)
def test_duration_is_written(span: timedelta, text: str) -> None:
    assert format_duration(span) == text


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=100_000)))
def test_written_duration_reads_the_same(span: timedelta) -> None:
    assert parse_duration(format_duration(span)) == span


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, '"PT0S"'), (87.00049, '"PT1M27S"'), (1.2345, '"PT1.234S"'), (None, "null")]
)
def test_measured_time_is_told_to_the_millisecond(seconds: float | None, text: str) -> None:
    assert TypeAdapter(Duration | None).dump_json(duration_of(seconds)).decode() == text
