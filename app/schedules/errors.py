"""Errors of schedules.

ServiceError -> ScheduleNotFound, VerbNotScheduled, NeverDue, TooManySchedules
"""

from app.errors import Conflict, NotFound, Unprocessable


class ScheduleNotFound(NotFound):
    """There is no such schedule."""


class VerbNotScheduled(Unprocessable):
    """A job of this kind is not made again and again by one and the same body."""


class NeverDue(Unprocessable):
    """No time of the calendar fits the cron."""


class TooManySchedules(Conflict):
    """The table of schedules has an end."""
