"""ISO 8601 durations as text and as timedelta."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated

from pydantic import PlainSerializer, WithJsonSchema

_PATTERN = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def parse_duration(text: str) -> timedelta:
    """Read `PT15M`, `P25D`, `PT0S`.

    Raises: ValueError: not an ISO 8601 duration of weeks, days, hours, minutes and seconds.
    """
    match = _PATTERN.fullmatch(text)
    parts = {name: float(value) for name, value in (match.groupdict() if match else {}).items() if value}
    if not parts:
        raise ValueError(f"not an ISO 8601 duration such as PT15M or P25D: {text[:50]}")
    return timedelta(**parts)


def format_duration(value: timedelta) -> str:
    """Write a duration so that `parse_duration` reads the same."""
    seconds, micros = divmod(value // timedelta(microseconds=1), 1_000_000)
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    second = f"{rest}.{micros:06}".rstrip("0") if micros else str(rest)
    date = f"{days}D" if days else ""
    clock = f"{hours}H" * bool(hours) + f"{minutes}M" * bool(minutes) + f"{second}S" * (second != "0")
    return f"P{date}T{clock}" if clock else f"P{date}" if date else "PT0S"


Duration = Annotated[
    timedelta,
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    # No format: JSON Schema's "duration" is RFC 3339's, which knows no fractions of a second.
    WithJsonSchema({"type": "string", "pattern": r"^P(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?$"}),
]
"""A member of an answer that says how long: `PT1M27.5S`."""


def duration_of(seconds: float | None) -> timedelta | None:
    """A measured time as the answers tell it: to the millisecond, and None stays None."""
    return None if seconds is None else timedelta(milliseconds=round(seconds * 1000))


def read_duration(value: object) -> object:
    """Before a model reads a Duration: a text alone says which unit it means.

    Raises: ValueError.
    """
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError("an ISO 8601 duration such as PT15M or P25D")
    try:
        return parse_duration(value)
    except OverflowError as error:
        raise ValueError("longer than any duration here") from error


def between(least: timedelta, most: timedelta) -> Callable[[timedelta], timedelta]:
    """After a model has read one: both bounds are allowed."""
    detail = f"from {format_duration(least)} to {format_duration(most)}"

    def bounded(value: timedelta) -> timedelta:
        if not least <= value <= most:
            raise ValueError(detail)
        return value

    return bounded
