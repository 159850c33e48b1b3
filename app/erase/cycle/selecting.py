"""The start of a cycle: creation times are read under their own throttle, and files are chosen by age.

Shapes: one ErasureFile row for each file of the directory; PENDING where it is selected.
Source: je-data-eraser, Throttling; facts eraser-behaviour, 2 and 6.
"""

import math
from datetime import datetime, timedelta
from typing import Final

from sqlmodel import Session, col, select

from app.erase.cycle.attempt import Attempt
from app.erase.cycle.throttle import UNITS_PER_BYTE, header_times_s, spread
from app.erase.messages import Message
from app.erase.models import CycleParams
from app.erase.record import note_remaining, spend
from app.erase.rows import CycleStep, ErasureCycle, ErasureFile, FileState
from app.jobs.errors import JobFailed
from spark.erase.calls.calls import HeaderTime, HeaderTimesAnswer, HeaderTimesCall
from spark.erase.errors import LogRefused
from spark.erase.reading.directory import file_names
from spark.erase.reasons import Cause
from spark.formats.je.log import file_number

CALL_FILES_MAX: Final = 5_000
PIECE_S: Final = 30.0
"""Where the headers take longer than this, so many of them are read at once as this time allows."""


def select_files(attempt: Attempt) -> None:
    """Bring a cycle to SELECTED, from wherever it stands before that.

    Raises: JobWaiting, JobFailed, EndReached.
    """
    if attempt.cycle.step == CycleStep.NEW:
        _start(attempt)
    while attempt.cycle.step == CycleStep.HEADERS:
        _read_piece(attempt)


def _names(attempt: Attempt) -> list[str]:
    try:
        return file_names(attempt.directory)
    except LogRefused as error:
        raise JobFailed(error.code, str(error)) from error


def _start(attempt: Attempt) -> None:
    """Fix the cycle's start, end and cut-off."""
    now = attempt.now
    count = len(_names(attempt))
    reviewed_cutoff = CycleParams.model_validate(attempt.context.job.params).cutoff

    def edit(_db: Session, cycle: ErasureCycle) -> None:
        cycle.started_at = now
        cycle.cutoff_at = reviewed_cutoff or now - timedelta(seconds=cycle.min_file_age_s)
        cycle.ends_at = now + timedelta(seconds=cycle.duration_s) if cycle.duration_s else None
        cycle.step = CycleStep.HEADERS
        cycle.next_at = now

    attempt.record.change(edit, say=Message.INITIALIZING, files=count)


def _read_piece(attempt: Attempt) -> None:
    """Read some headers; after the last one the files are chosen."""
    names = _names(attempt)
    span_s = header_times_s(len(names), attempt.cycle.duration_s)
    piece = math.ceil(len(names) * PIECE_S / span_s) if span_s > PIECE_S else len(names)
    known = attempt.record.read(lambda db: _last_known(db, attempt.cycle.id))
    began = attempt.begin()
    call = HeaderTimesCall(str(attempt.directory), first=known + 1, count=min(piece, CALL_FILES_MAX))
    answer = attempt.call(lambda hands: hands.header_times(call))
    if answer.refusal is not None:
        raise attempt.refused(answer.refusal)
    pause = timedelta(seconds=span_s * len(answer.files) / len(names))
    is_over = not answer.files or answer.files[-1].number >= file_number(names[-1])

    def edit(db: Session, cycle: ErasureCycle) -> None:
        _add_files(db, cycle, answer)
        cycle.next_at = max(cycle.next_at or began, began) + pause
        if is_over:
            _choose(db, cycle, now=attempt.now)

    attempt.record.change(edit, say=Message.STARTED if is_over else None)


def _last_known(db: Session, cycle_id: str) -> int:
    numbers = db.exec(select(ErasureFile.number).where(ErasureFile.cycle_id == cycle_id)).all()
    return max(numbers, default=-1)


def _add_files(db: Session, cycle: ErasureCycle, answer: HeaderTimesAnswer) -> None:
    assert cycle.cutoff_at is not None, "a cycle has its cut-off before it reads a header"
    cutoff_ms = _ms(cycle.cutoff_at)
    for file in answer.files:
        db.add(_row(cycle.id, file, cutoff_ms))
    spend(db, cycle, answer.costs)
    db.flush()


def _row(cycle_id: str, file: HeaderTime, cutoff_ms: int) -> ErasureFile:
    # One that vanished, or has no header, is infinitely young.
    is_old = file.created_ms is not None and file.created_ms <= cutoff_ms
    causes = [] if is_old else [[Cause.TOO_YOUNG.value, "created after the cycle's cut-off"]]
    return ErasureFile(
        cycle_id=cycle_id,
        number=file.number,
        size_bytes=file.size,
        created_ms=file.created_ms,
        causes=causes,
        state=FileState.PENDING if is_old else FileState.NOT_SELECTED,
    )


def _choose(db: Session, cycle: ErasureCycle, *, now: datetime) -> None:
    """Leave the last file out, and add up the work."""
    query = select(ErasureFile).where(ErasureFile.cycle_id == cycle.id).order_by(col(ErasureFile.number))
    files = list(db.exec(query).all())
    if files and files[-1].state == FileState.PENDING:
        files[-1].state = FileState.NOT_SELECTED
        files[-1].causes = [[Cause.TAIL_OF_LOG.value, "the last file; writing goes on in it"]]
        db.add(files[-1])
    selected = [file for file in files if file.state == FileState.PENDING]
    cycle.files_selected = len(selected)
    cycle.total_units = UNITS_PER_BYTE * sum(file.size_bytes for file in selected)
    spread(cycle, now=now)
    cycle.step = CycleStep.SELECTED
    note_remaining(db, cycle)


def _ms(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)
