"""Times in free text and in stored JSON look like those of typed fields."""

from datetime import UTC, datetime, timedelta, timezone

from app.kit.instants import instant_text


def test_any_zone_is_written_in_utc_with_a_z() -> None:
    at = datetime(2026, 11, 1, 11, 0, 0, 250_000, tzinfo=timezone(timedelta(hours=1)))
    assert instant_text(at) == "2026-11-01T10:00:00.250000Z"
    assert datetime.fromisoformat(instant_text(at)) == at.astimezone(UTC)
