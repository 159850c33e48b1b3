"""Six fields, seconds first; local times across the changes of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.errors import Unprocessable
from app.kit.cron import InvalidCron, next_time, parse_cron
from app.parameters.registry import find_parameter


def times(expression: str, after: datetime, count: int, zone: str) -> list[str]:
    found = []
    for _ in range(count):
        after = next_time(expression, after, time_zone=zone)
        found.append(after.isoformat())
    return found


def test_forms_of_the_document_are_understood() -> None:
    assert parse_cron("0 0 0 * * *") == "0 0 0 * * *"
    assert parse_cron(" 0  0 */4 ? * * ") == "0 0 */4 * * *"
    assert parse_cron("0 30 2 ? * SUN") == "0 30 2 * * SUN"


@pytest.mark.parametrize(
    "text", ["", "0 0 * * *", "0 0 0 * * * *", "61 0 0 * * *", "0 0 0 30 2 *", "0 0 0 1 * MON", "@daily", "x"]
)
def test_other_forms_are_refused_with_a_reason(text: str) -> None:
    with pytest.raises(InvalidCron):
        parse_cron(text)
    spec = find_parameter("job.purge.outgoing.cron")
    assert spec is not None
    with pytest.raises(Unprocessable, match=r"job\.purge\.outgoing\.cron: .+"):
        spec.parse(text)


def test_midnight_is_midnight_of_the_zone_before_and_after_summer_time() -> None:
    assert times("0 0 0 * * *", datetime(2026, 10, 23, 12, tzinfo=UTC), 4, "Europe/Berlin") == [
        "2026-10-23T22:00:00+00:00",
        "2026-10-24T22:00:00+00:00",
        "2026-10-25T23:00:00+00:00",
        "2026-10-26T23:00:00+00:00",
    ]


def test_a_time_that_is_left_out_is_no_tick_that_day() -> None:
    assert times("0 30 2 * * *", datetime(2026, 3, 28, 12, tzinfo=UTC), 1, "Europe/Berlin") == [
        "2026-03-30T00:30:00+00:00"
    ]


def test_a_tick_is_later_than_the_instant_that_is_asked_about() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert next_time("0 0 */4 * * *", noon, time_zone="UTC") == datetime(2026, 1, 1, 16, tzinfo=UTC)
