"""From an instant to the value that stands for it in the columns of a target.

Columns are naive local time. The value bound is the least local time that any instant at or after the cut-off
can
show: no row captured at or after the cut-off is ever below it, not even across the end of summer time.
Source: design.md, Purge; facts/symmetricds-purge, section 1.
"""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from spark.formats.symmetricds import TimeEncoding

CutoffValue = datetime | str | int

# Clocks were never set back by more than a day, so a later setting cannot reach below the cut-off's reading.
SEARCHED = timedelta(hours=26)
STEP = timedelta(minutes=15)
RESOLUTION = timedelta(seconds=1)


def local_reading(cutoff_utc: datetime, *, time_zone: str) -> datetime:
    """The least naive local time of any instant at or after `cutoff_utc`, which must be aware."""
    assert cutoff_utc.tzinfo is not None, "an instant has a zone"
    zone = ZoneInfo(time_zone)
    instant = cutoff_utc.astimezone(UTC)
    least = _naive(instant, zone)
    end = instant + SEARCHED
    while instant < end:
        later = instant + STEP
        if _offset(later, zone) < _offset(instant, zone):
            least = min(least, _naive(_first_after_change(instant, later, zone), zone))
        instant = later
    return least


def convert(cutoff_utc: datetime, *, time_zone: str, encoding: TimeEncoding) -> CutoffValue:
    """The value that `create_time <` is compared with.

    Args:
        cutoff_utc: aware.
        time_zone: IANA name of the zone of naive columns; milliseconds and timestamptz are instants by
            themselves.
        encoding: as inspected. Text compares as text, so it is cut to whole seconds: a row with a fraction in
            the very second of the cut-off is greater and stays.
    """
    assert cutoff_utc.tzinfo is not None, "an instant has a zone"
    if encoding == "epoch_ms":
        return (cutoff_utc - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if encoding == "timestamptz":
        return cutoff_utc.astimezone(UTC)
    reading = local_reading(cutoff_utc, time_zone=time_zone)
    if encoding == "text":
        return reading.replace(microsecond=0).isoformat(sep=" ")
    return reading


def instant_of(value: CutoffValue, *, time_zone: str, encoding: TimeEncoding) -> datetime | None:
    """The instant of a value read from a column, aware, in UTC; the earlier one in a fold; None: not a
    time.
    """
    if isinstance(value, datetime):
        naive = value
    elif isinstance(value, int):
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
    else:
        try:
            naive = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if naive.tzinfo is None:
        naive = naive.replace(tzinfo=UTC if encoding == "timestamptz" else ZoneInfo(time_zone))
    try:
        return naive.astimezone(UTC)
    except OverflowError:
        return None


def _naive(instant: datetime, zone: ZoneInfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _offset(instant: datetime, zone: ZoneInfo) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None, "a zone has an offset"
    return offset


def _first_after_change(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first whole second of the new offset, by halving."""
    old = _offset(before, zone)
    low, high = before.replace(microsecond=0), after
    while high - low > RESOLUTION:
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if _offset(middle, zone) == old:
            low = middle
        else:
            high = middle
    return high.replace(microsecond=0)
