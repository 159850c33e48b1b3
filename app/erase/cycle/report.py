"""What a cycle leaves behind: the result of its job, with a warning for everything that stayed."""

from typing import Any, Final

from sqlmodel import Session, col, select

from app.erase.left_over import why_left_over
from app.erase.messages import hex_ranges
from app.erase.models import CycleParams
from app.erase.reviewed import beside
from app.erase.rows import REMAINING, CycleState, ErasureCycle, ErasureFile, FileState
from app.erase.stats import stats_of_cycle
from app.jobs.rows import Job
from spark.erase.reasons import Cause

WARNED: Final = {
    FileState.KEPT: "nothing of them may be erased",
    FileState.REFUSED: "the work at them was ended",
    FileState.UNPROVEN: "what is on the medium is not proved",
}


def result_of(db: Session, cycle: ErasureCycle) -> dict[str, Any]:
    """The result of a cycle's job."""
    query = select(ErasureFile).where(ErasureFile.cycle_id == cycle.id).order_by(col(ErasureFile.number))
    files = list(db.exec(query).all())
    remaining = [file for file in files if file.state in REMAINING]
    by_cause = _by_cause(remaining, cycle.state)
    erased = sum(_erased(file) for file in files)
    return {
        "erasure_cycle_id": cycle.id,
        "state": str(cycle.state),
        "files": {
            state.value: number
            for state in FileState
            if (number := sum(file.state == state for file in files))
        },
        "remaining": len(remaining),
        "remaining_by_cause": by_cause,
        "vetoed": (cycle.plan or {}).get("vetoed_count", 0),
        "erased": {"entries": erased},
        **beside(CycleParams.model_validate(db.get_one(Job, cycle.job_id).params), erased),
        "stats": stats_of_cycle(cycle).model_dump(),
        "warnings": _warnings(cycle, files, by_cause),
    }


def _erased(file: ErasureFile) -> int:
    """Entries that are overwritten, or went with their file."""
    if file.state == FileState.DELETED:
        return sum(int(entries) for entries, _bytes in file.planned.values())
    return file.rows_done


def _by_cause(remaining: list[ErasureFile], state: CycleState) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for file in remaining:
        [cause, _detail], *_others = why_left_over(file, CycleState(state), {})
        found.setdefault(cause, []).append(f"{file.number:08x}.jdb")
    return found


def _warnings(
    cycle: ErasureCycle, files: list[ErasureFile], by_cause: dict[str, list[str]]
) -> list[dict[str, Any]]:
    warnings = []
    if cycle.state == CycleState.INCOMPLETE:
        for cause, names in by_cause.items():
            numbers = hex_ranges(int(name[:8], 16) for name in names)
            detail = f"{len(names)} file(s) were not erased within the cycle: {numbers}"
            warnings.append({"code": cause, "detail": detail, "count": len(names)})
    for state, text in WARNED.items():
        found = [file for file in files if file.state == state]
        if found:
            numbers = hex_ranges(file.number for file in found)
            warnings.append({"code": state.value, "detail": f"{numbers}: {text}", "count": len(found)})
    tail = [file.number for file in files if _is_tail(file)]
    if tail and cycle.plan is not None:
        detail = f"{hex_ranges(tail)}: obsolete data at the end of the log is not erased"
        warnings.append({"code": str(Cause.TAIL_OF_LOG), "detail": detail, "count": len(tail)})
    return warnings


def _is_tail(file: ErasureFile) -> bool:
    causes = {str(cause) for cause, _detail in file.causes}
    return file.state == FileState.NOT_SELECTED and str(Cause.TAIL_OF_LOG) in causes
