"""Instants as text: RFC 3339 in UTC, with a Z, as every time in an answer."""

from datetime import UTC, datetime


def instant_text(value: datetime) -> str:
    """Write an aware time as `2026-11-20T10:54:39.613933Z`, as the fields of answers are written."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
