"""What a schedule does at a look: pure, of times alone.

Rules:
- one look fires at most once, for the newest due time that has come;
- that one is missed where nobody looked within MISSED_AFTER of it: SKIP leaves it out, RUN_ONCE makes it up,
  once for all that were missed;
- a due time that was fired is not fired again, whatever the clock does; one that was not comes again where
  the clock was put back before it.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from app.schedules.crontab import Crontab

MISSED_AFTER: Final = timedelta(minutes=1)


class MissedRuns(StrEnum):
    """What becomes of due times that nobody was there for."""

    SKIP = "SKIP"
    RUN_ONCE = "RUN_ONCE"


class ScheduleOverlap(StrEnum):
    """What becomes of a due time while the job of an earlier one has not ended."""

    FORBID = "FORBID"
    QUEUE = "QUEUE"


def offset_of(schedule_id: str, jitter: timedelta) -> timedelta:
    """How much later than its cron a schedule comes: always the same of one schedule, in whole seconds."""
    whole = int(jitter.total_seconds())
    digest = hashlib.sha256(schedule_id.encode()).digest()
    return timedelta(seconds=int.from_bytes(digest[:8], "big") % (whole + 1))


@dataclass(frozen=True, slots=True)
class Timing:
    """When a schedule comes."""

    crontab: Crontab
    offset: timedelta
    missed: MissedRuns

    def next_due(self, now: datetime, *, fired: Collection[datetime] = ()) -> datetime | None:
        """The first due time that has not come and was not fired; None: none will come."""
        due = self.crontab.next_after(now - self.offset)
        while due is not None and due in fired:
            due = self.crontab.next_after(due)
        return due

    def decide(
        self,
        next_due: datetime,
        now: datetime,
        *,
        there_since: datetime,
        fired: Collection[datetime] = (),
    ) -> "Decision":
        """What a look at a schedule whose `next_due` has come does.

        Args:
            there_since: since when it was looked without a gap, until now.
            fired: due times from `next_due` on that were fired.
        """
        newest = self.crontab.last_until(now - self.offset)
        due = next_due if newest is None else max(newest, next_due)
        is_late = there_since - (due + self.offset) > MISSED_AFTER
        fires = due not in fired and (not is_late or self.missed is MissedRuns.RUN_ONCE)
        return Decision(due, fires=fires, is_missed=is_late, next_due=self.next_due(now, fired=fired))


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done at a look.

    Attributes:
        due: the due time that is fired, or is left out.
        next_due: the one after it; None: none will come.
    """

    due: datetime
    fires: bool
    is_missed: bool
    next_due: datetime | None
