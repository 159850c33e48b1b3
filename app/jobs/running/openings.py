"""When a job may work, as the runner is told by the floors above: windows.

Rules:
- a job that may not work gives its slot and its lease back, and is WAITING until it may;
- it gives its claims back too where every unit of it looks at the fence: whoever claims its target next shuts
  it out, and it takes its claims again before it goes on. Where no fence stands (erasures of JE: their claim
  is all that keeps another eraser off; the scan of an extinction: its claim is its own) it keeps them;
- one that may work a part of the time is throttled so, whatever else throttles it.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from sqlmodel import Session

from app.jobs.errors import JobWaiting, StopCause
from app.jobs.models import ThrottleSetting, WaitingOn
from app.jobs.running.claims import ClaimedJob
from app.jobs.running.context import JobContext
from app.jobs.running.sql_target import is_fenced
from app.jobs.running.suspension import suspended_wait
from app.kit.instants import instant_text

WAITING_KIND: Final = "WINDOW"
LOOK_AGAIN: Final = timedelta(hours=1)
"""At the latest: whoever changes a window wakes the jobs that it holds."""


@dataclass(frozen=True, slots=True)
class Opening:
    """How hard a job may work now.

    Attributes:
        ref: the window that says so.
        until: when a job that may not work may again; None: nobody can tell.
        looked_at: when that was reckoned, by the metadata's clock.
        not_before: a job that may not work surely may not before; None: it never may.
    """

    intensity: float
    ref: str
    until: datetime | None = None
    looked_at: datetime | None = field(default=None, compare=False)
    not_before: datetime | None = field(default=None, compare=False)


class Openings(Protocol):
    """Knows when jobs may work."""

    wake_key: str

    def of(self, job: ClaimedJob, *, fresh: bool = False) -> Opening | None:
        """How hard a job may work now; None: nothing brakes it.

        Args:
            fresh: look anew; else what was seen some seconds ago may be told.
        """
        ...

    def closes(self, db: Session, job: ClaimedJob) -> bool:
        """Whether a job may not work now, as this transaction sees it; it opens no other."""
        ...

    def finishes_at(self, job: ClaimedJob, now: datetime, *, work_s: float) -> datetime | None:
        """When work of so many seconds at full intensity is done; None: nobody can tell."""
        ...


class AlwaysOpen:
    """No windows."""

    wake_key = ""

    def of(self, _job: ClaimedJob, *, fresh: bool = False) -> Opening | None:
        """Nothing brakes a job."""
        return None

    def closes(self, _db: Session, _job: ClaimedJob) -> bool:
        """Never."""
        return False

    def finishes_at(self, _job: ClaimedJob, now: datetime, *, work_s: float) -> datetime | None:
        """By the work alone."""
        return now + timedelta(seconds=work_s)


def is_closed(opening: Opening | None) -> bool:
    """Whether a job may not work."""
    return opening is not None and opening.intensity <= 0


def window_wait(context: JobContext, openings: Openings) -> JobWaiting:
    """The wait of a job that may not work now; it goes on by itself."""
    opening = openings.of(context.job, fresh=True)
    if opening is None or not is_closed(opening):  # it has opened meanwhile
        return JobWaiting([WaitingOn(kind=WAITING_KIND, ref="open")], not_before=context.clock.now())
    waiting_on = [WaitingOn(kind=WAITING_KIND, ref=_shown(opening), until=opening.until)]
    again = (opening.looked_at or context.clock.now()) + LOOK_AGAIN
    opens = opening.until or opening.not_before

    def is_open(db: Session) -> bool:
        return not openings.closes(db, context.job)

    return JobWaiting(
        waiting_on,
        not_before=again if opens is None else min(opens, again),
        wake_key=openings.wake_key,
        overtaken=is_open,
        gives_back=is_fenced(context),
    )


def _shown(opening: Opening) -> str:
    if opening.until is not None:
        return f"{opening.ref}, until {instant_text(opening.until)}"
    if opening.not_before is not None:
        return f"{opening.ref}, not before {instant_text(opening.not_before)}"
    return f"{opening.ref}, until it is changed"


def rest_wait(context: JobContext, openings: Openings, cause: StopCause) -> JobWaiting:
    """The wait of a job that was stopped because its store rests, or a window has closed."""
    if cause is StopCause.WINDOW:
        return window_wait(context, openings)
    return suspended_wait(context.job.store or "", now=context.metadata_now())


def brake(context: JobContext, openings: Openings, wanted: ThrottleSetting, *, fresh: bool = False) -> bool:
    """Hold a job to what was asked for and to what its windows allow; False: it may not work now."""
    opening = openings.of(context.job, fresh=fresh)
    setting, cause = braked(wanted, opening)
    if (setting, cause) != (context.throttle.setting, context.throttle.cause):
        context.throttle.set(setting, cause=cause)
    return not is_closed(opening)


def braked(wanted: ThrottleSetting, opening: Opening | None) -> tuple[ThrottleSetting, str]:
    """The bounds that hold a job, and what they are for: the tighter of what was asked for and the window."""
    if opening is None or opening.intensity <= 0 or opening.intensity >= (wanted.intensity or 1.0):
        return wanted, "REQUESTED"
    changes: dict[str, Any] = {"intensity": opening.intensity}
    return wanted.model_copy(update=changes), WAITING_KIND
