"""What a wait tells: who is outstanding, in its event and in what it waits for."""

from datetime import datetime
from typing import Final

from app.events.waits.models import OUTSTANDING_SHOWN_MAX, OutstandingRead, WaitTold, outstanding_read
from app.jobs.models import WaitingOn
from spark.events.waiting import Look

CHECKPOINT: Final = "wait"
WAITING_ON_MAX: Final = 10
CONFIRMATION: Final = "CONFIRMATION"


def told_of(found: Look, *, looked_at: datetime) -> WaitTold:
    """What a look tells."""
    return WaitTold(
        outstanding=[outstanding_read(each) for each in found.outstanding[:OUTSTANDING_SHOWN_MAX]],
        outstanding_total=len(found.outstanding),
        pairs=found.pairs,
        looked_at=looked_at,
        problem=None,
    )


def waiting_on_of(told: WaitTold, *, deadline: datetime | None) -> list[WaitingOn]:
    """What a job waits for that waits for confirmations."""
    return [
        WaitingOn(kind=CONFIRMATION, ref=named(each), until=deadline)
        for each in told.outstanding[:WAITING_ON_MAX]
    ]


def named(each: OutstandingRead) -> str:
    """A receiver, and what it has not confirmed."""
    return f"node {each.receiver} of ({each.origin},{each.seqno})"
