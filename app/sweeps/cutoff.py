"""The instant by which a sweep tells old from young: fixed by its first attempt, by the target's clock."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from app.errors import Unprocessable
from app.jobs.running.context import JobContext
from app.kit.instants import instant_text

CHECKPOINT_CUTOFF: Final = "cutoff"


class FutureCutoff(Unprocessable):
    """The cut-off is later than the target's clock."""


class RetentionTooShort(Unprocessable):
    """So young rows go only with `force`."""


def check_cutoff(cutoff: datetime, now: datetime) -> None:
    """Return for a cut-off that has passed.

    Args:
        now: by the target's clock.
    Raises: FutureCutoff.
    """
    if cutoff > now:
        raise FutureCutoff(
            f"the cut-off {instant_text(cutoff)} is later than the target's {instant_text(now)}"
        )


def fixed_instant(
    context: JobContext, decide: Callable[[], datetime | None], *, checkpoint: str = CHECKPOINT_CUTOFF
) -> datetime | None:
    """What the first attempt decided: it holds for all.

    Args:
        decide: asked once in the life of a job; None: rows of any age.
    Raises: what `decide` raises.
    """
    known = context.checkpoint(checkpoint)
    if known is not None:
        return None if known["at"] is None else datetime.fromisoformat(known["at"])
    at = decide()
    context.save_checkpoint(checkpoint, {"at": None if at is None else at.isoformat()})
    return at
