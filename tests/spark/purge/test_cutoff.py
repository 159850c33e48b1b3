"""The cut-off in the columns' own time: never above the reading of an instant that is young enough to
stay.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.formats.symmetricds import TimeEncoding
from spark.purge.cutoff import convert, instant_of, local_reading

BERLIN = "Europe/Berlin"
INSTANTS = st.datetimes(datetime(1985, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC))
ZONES = st.sampled_from(
    [BERLIN, "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata", "UTC"]
)


@given(cutoff=INSTANTS, zone=ZONES, later=st.timedeltas(timedelta(0), timedelta(days=2)))
def test_reading_of_any_zone_is_not_above_a_later_instants(
    cutoff: datetime, zone: str, later: timedelta
) -> None:
    reading = local_reading(cutoff, time_zone=zone)
    assert reading <= (cutoff + later).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    assert reading >= cutoff.astimezone(ZoneInfo(zone)).replace(tzinfo=None) - timedelta(hours=24)


def test_cutoff_before_the_end_of_summer_time_takes_the_second_reading_of_the_hour() -> None:
    # 2026-10-25 01:00 UTC: Berlin goes from 03:00 back to 02:00.
    assert local_reading(datetime(2026, 10, 25, 0, 30, tzinfo=UTC), time_zone=BERLIN) == datetime(
        2026, 10, 25, 2
    )
    assert local_reading(datetime(2026, 10, 25, 1, 30, tzinfo=UTC), time_zone=BERLIN) == datetime(
        2026, 10, 25, 2, 30
    )
    assert local_reading(datetime(2026, 10, 24, 22, tzinfo=UTC), time_zone=BERLIN) == datetime(
        2026, 10, 25, 0
    )


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("timestamp", datetime(2026, 7, 1, 14, 0, 0, 999_999)),
        ("timestamptz", datetime(2026, 7, 1, 12, 0, 0, 999_999, tzinfo=UTC)),
        ("text", "2026-07-01 14:00:00"),
        ("epoch_ms", 1_782_907_200_999),
    ],
)
def test_cutoff_in_each_encoding_is_what_the_column_compares(encoding: TimeEncoding, value: object) -> None:
    cutoff = datetime(2026, 7, 1, 12, 0, 0, 999_999, tzinfo=UTC)
    assert convert(cutoff, time_zone=BERLIN, encoding=encoding) == value


def test_text_row_in_the_second_of_the_cutoff_is_not_below_it() -> None:
    value = convert(datetime(2026, 7, 1, 12, 0, 0, 500_000, tzinfo=UTC), time_zone="UTC", encoding="text")
    assert isinstance(value, str)
    assert value <= "2026-07-01 12:00:00.499"
    assert value > "2026-07-01 11:59:59.999999"


@pytest.mark.parametrize(
    ("value", "encoding"),
    [
        (datetime(2026, 7, 1, 14), "timestamp"),
        ("2026-07-01 14:00:00.000", "text"),
        (1_782_907_200_000, "epoch_ms"),
        (datetime(2026, 7, 1, 12, tzinfo=UTC), "timestamptz"),
    ],
)
def test_value_of_a_column_read_back_is_its_instant(
    value: datetime | str | int, encoding: TimeEncoding
) -> None:
    assert instant_of(value, time_zone=BERLIN, encoding=encoding) == datetime(2026, 7, 1, 12, tzinfo=UTC)


def test_text_that_is_no_time_has_no_instant() -> None:
    assert instant_of("soon", time_zone="UTC", encoding="text") is None
