"""The document's messages of a cycle: a line of the log and an event of the job, the same words in both.

All begin with ERASER and include the cycle's start and end, the files processed, and those that are yet to
be processed (je-data-eraser; facts eraser-behaviour, 10).
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import structlog
from sqlalchemy import func
from sqlmodel import Session, col, select

from app.erase.rows import REMAINING, ErasureCycle, ErasureFile, FileState
from app.jobs.rows import JobEvent
from app.kit.instants import instant_text

EVENT_ERASER: Final = "eraser"
RANGES_SHOWN_MAX: Final = 50
logger = structlog.get_logger("lethe.eraser")


class Message(StrEnum):
    """What the document logs, by its words; the value is what follows the prefix."""

    INITIALIZING = "Initializing"
    STARTED = "New cycle started"
    COMPLETED = "Completed cycle"
    INCOMPLETE = "Unable to erase all files within the cycle"
    RESUMED = "Resumed cycle"
    NOT_RESUMED = "Cycle not resumed, its end has passed"
    SUSPENDED = "Suspended cycle"
    DROPPED = "Period changed, cycle dropped"
    ABORTED = "Aborted cycle"
    FAILED = "Failed cycle"
    FILE = "Erased file"
    WAITING = "Unable to erase any file now"
    SKIPPED = "File skipped"
    REPLANNED = "Plan made again"
    LATE = "Cycle will not end in time"


WARNINGS: Final = frozenset(
    {Message.INCOMPLETE, Message.NOT_RESUMED, Message.FAILED, Message.SKIPPED, Message.LATE}
)
ENDS: Final = frozenset({Message.COMPLETED, Message.INCOMPLETE})
NO_END: Final = "none"


def hex_ranges(numbers: Iterable[int]) -> str:
    """File numbers as the document shows them: `0x0-0x2, 0x5`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [f"{first:#x}" if first == last else f"{first:#x}-{last:#x}" for first, last in runs]
    more = len(shown) - RANGES_SHOWN_MAX
    return ", ".join(shown[:RANGES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")


def processed_and_remaining(db: Session, cycle_id: str) -> tuple[str, str]:
    """The selected files of a cycle that are done, and those that are not."""
    rows = db.exec(
        select(ErasureFile.number, ErasureFile.state).where(
            ErasureFile.cycle_id == cycle_id, col(ErasureFile.state) != FileState.NOT_SELECTED
        )
    ).all()
    remaining = [number for number, state in rows if state in REMAINING]
    return hex_ranges(number for number, state in rows if state not in REMAINING), hex_ranges(remaining)


def message(db: Session, cycle: ErasureCycle, what: Message, **facts: Any) -> tuple[str, dict[str, Any]]:
    """Log a message; returns the event of the job, to be written with the change that it tells of."""
    processed, remaining = processed_and_remaining(db, cycle.id)
    known = {
        name: instant_text(value) if isinstance(value, datetime) else value
        for name, value in facts.items()
        if value is not None
    }
    data = {
        "erasure_cycle_id": cycle.id,
        "start": _instant(cycle.started_at),
        "end": NO_END if cycle.ends_at is None and cycle.started_at is not None else _instant(cycle.ends_at),
        "processed": processed,
        "remaining": remaining,
        **known,
    }
    if what in ENDS:
        data["outcomes"] = _outcomes(db, cycle.id)
    text = f"ERASER {what.value}: " + " ".join(f"{name}={value}" for name, value in data.items())
    log = logger.warning if what in WARNINGS else logger.info
    log(text, store=cycle.store)
    return EVENT_ERASER, {"message": what.name, "text": text, **data}


def last_message(db: Session, job_id: str, what: Message) -> dict[str, Any]:
    """The data of the newest message of this kind; empty: there is none."""
    query = select(JobEvent.data).where(JobEvent.job_id == job_id, JobEvent.type == EVENT_ERASER)
    events = db.exec(query.order_by(col(JobEvent.seq).desc())).all()
    return next((dict(data) for data in events if data["message"] == what.name), {})


def _outcomes(db: Session, cycle_id: str) -> str:
    """What became of the files that were selected: one that JE has deleted is processed, and not erased."""
    query = (
        select(ErasureFile.state, func.count())
        .where(ErasureFile.cycle_id == cycle_id, col(ErasureFile.state) != FileState.NOT_SELECTED)
        .group_by(ErasureFile.state)
    )
    return ", ".join(f"{state} {number}" for state, number in sorted(db.exec(query).all()))


def _instant(value: datetime | None) -> str:
    return "" if value is None else instant_text(value)
