"""Why a file that a cycle was to erase is not erased at its end: said in the file's row, for ever."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from sqlmodel import Session, col, select

from app.erase.rows import REMAINING, CycleState, ErasureCycle, ErasureFile, FileState
from app.kit.instants import instant_text
from app.protection.rows import Protection
from app.protection.service import protected_files
from spark.erase.reasons import Cause

NOT_REACHED: Final = "NOT_REACHED"
IN_WORK: Final = "IN_WORK"


def note_left_over(db: Session, cycle: ErasureCycle, state: CycleState, *, now: datetime) -> None:
    """Write into each file that remains why it does, where nothing else has said so yet."""
    query = select(ErasureFile).where(
        ErasureFile.cycle_id == cycle.id, col(ErasureFile.state).in_(sorted(REMAINING))
    )
    files = [file for file in db.exec(query).all() if not file.causes]
    held = protected_files(db, cycle.store, [file.number for file in files], now=now)
    for file in files:
        file.causes = why_left_over(file, state, held)
        db.add(file)


def why_left_over(file: ErasureFile, state: CycleState, held: Mapping[int, Protection]) -> list[list[str]]:
    """Causes of a file that remains, the weightiest first; none of one that does not remain."""
    if file.causes or file.state not in REMAINING:
        return [list(each) for each in file.causes]
    causes = []
    holder = held.get(file.number)
    if holder is not None:
        until = instant_text(holder.lease_expires_at)
        detail = f"{holder.kind} {holder.name} ({holder.id}) holds it, until {until} at the latest"
        causes.append([str(Cause.PROTECTED), detail])
    if file.refusal is not None:
        causes.append([str(file.refusal["code"]), str(file.refusal["detail"])])
    if file.state == FileState.IN_WORK and file.sha256_expected is None:  # begun without a hash: a deletion
        detail = (
            f"the cycle ended {state.value} when its deletion had begun: where it is {file.number:08x}.del"
        )
        causes.append([IN_WORK, f"{detail} by now, all of its bytes are there, and no cycle looks at them"])
    elif file.state == FileState.IN_WORK:
        done = f"{file.rows_done} of {file.entry_count} planned entries were overwritten"
        causes.append([IN_WORK, f"the cycle ended {state.value} when {done}; the next cycle finishes it"])
    elif not causes:
        causes.append([NOT_REACHED, f"the cycle ended {state.value} before it came to this file"])
    return causes
