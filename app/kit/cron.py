"""Cron expressions of six fields, seconds first, as Spring and SymmetricDS write them: `0 0 */4 * * *`.

Day of the month and day of the week may not both be limited: Spring asks for both, cron for either.
"""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

FIELDS = 6
DAY_OF_MONTH, DAY_OF_WEEK = 3, 5
ANY = ("*", "?")
_SOME_DAY = datetime(2026, 1, 1, tzinfo=UTC)


class InvalidCron(ValueError):
    """Not an expression that this service understands."""


def parse_cron(expression: str) -> str:
    """The expression in its canonical form: one blank between fields, `*` for `?`.

    Raises: InvalidCron.
    """
    fields = expression.split()
    if len(fields) != FIELDS:
        raise InvalidCron("six fields: second, minute, hour, day of month, month, day of week")
    for place in (DAY_OF_MONTH, DAY_OF_WEEK):
        fields[place] = "*" if fields[place] in ANY else fields[place]
    if fields[DAY_OF_MONTH] != "*" and fields[DAY_OF_WEEK] != "*":
        raise InvalidCron("limit the day of the month or the day of the week, not both")
    canonical = " ".join(fields)
    require_some_day(canonical)
    return canonical


def require_some_day(expression: str) -> None:
    """Refuse what is no expression of cronsim, and what never comes.

    Raises: InvalidCron.
    """
    try:
        next(CronSim(expression, _SOME_DAY))
    except CronSimError as error:
        raise InvalidCron(str(error)) from error
    except StopIteration:
        raise InvalidCron("no such day ever comes") from None


def next_time(expression: str, after: datetime, *, time_zone: str) -> datetime:
    """The first instant after `after`, in UTC, at which local time fits.

    A local time that a change of the clocks leaves out is left out; one that comes twice fits twice.
    """
    found: datetime = next(CronSim(expression, after.astimezone(ZoneInfo(time_zone))))
    return found.astimezone(UTC)
