"""The entries of a reviewed plan: what a cycle with `plan_id` may erase, and nothing that came since.

Rules:
- the PLAN job keeps each entry that it counted, file by file; a plan without them is never executed;
- whatever a cycle of a plan is planned to do, and however often that is made again, is cut down to it;
- a cycle that would erase fewer than somebody wants ends before its first write.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlmodel import Session, col, select

from app.db import Database
from app.erase.cycle.attempt import Attempt
from app.erase.errors import PeriodMissing
from app.erase.models import CycleParams, CycleRequest, ErasurePlanRead
from app.erase.rows import EraseKind, ErasureFile, Origin
from app.jobs.errors import JobFailed, PlanNoLongerHolds, PlanNotUsable
from app.jobs.plans.reviewed_plan import check_still_holds, drift_fault, finished_plan
from app.jobs.rows import JobCheckpoint
from app.jobs.running.context import JobContext
from app.stores.rows import Store
from spark.erase.calls.calls import PlanAnswer, PlannedFile
from spark.targets.files.log_place import log_path

if TYPE_CHECKING:
    from spark.erase.reviewed import ReviewedFile

CHECKPOINT_REVIEWED: Final = "reviewed"
NO_ENTRIES: Final = "the plan was made by an earlier version, which kept no entries: plan again"
NO_ERASURE_PLAN: Final = "plan_id names no finished plan of an erasure cycle here"
ENTRIES: Final = "entries"


@dataclass(frozen=True, slots=True)
class ReviewedCycle:
    """A plan that a request names: as it was shown, its snapshot, and how many entries it has."""

    shown: ErasurePlanRead
    params: CycleParams
    entries: int


# -- the plan


def keep_reviewed(context: JobContext, answer: PlanAnswer, *, deletes: bool) -> None:
    """Keep what a plan would erase with its job, a file at a time.

    Args:
        deletes: whole files may go, where JE has put them aside.
    """
    from spark.erase.reviewed import keys_of

    files = {}
    for file in answer.files:
        is_whole = is_deleted(file, deletes=deletes)
        if not file.entry_count and not is_whole:
            continue
        identity = file.identity
        files[str(file.number)] = {
            "device": identity.device,
            "inode": identity.inode,
            "size": identity.size,
            "entries": file.entry_count,
            "deletes": is_whole,
        }
        context.save_checkpoint(_part(file.number), {"keys": b64encode(keys_of(file.entries)).decode()})
    context.save_checkpoint(CHECKPOINT_REVIEWED, {"files": files})


def is_deleted(file: PlannedFile, *, deletes: bool) -> bool:
    """Whether a file goes as a whole."""
    return deletes and file.reserved and file.barren and not file.causes


def _part(number: int) -> str:
    return f"{CHECKPOINT_REVIEWED}.{number:08x}"


# -- the request


def find_plan(db: Session, store: Store, request: CycleRequest, *, now: datetime) -> ReviewedCycle | None:
    """The plan that a request names, if it may still be executed.

    Raises: PlanNotUsable, PlanNoLongerHolds, LimitExceeded.
    """
    if request.plan_id is None:
        return None
    job = finished_plan(db, store, request.plan_id, of="ERASURE", detail=NO_ERASURE_PLAN)
    noted = db.get(JobCheckpoint, (job.id, CHECKPOINT_REVIEWED))
    if noted is None:
        raise PlanNoLongerHolds(NO_ENTRIES)
    shown, params = ErasurePlanRead.model_validate(job.result), CycleParams.model_validate(job.params)
    target: dict[str, object] = {"path": store.path, "mode": None if store.mode is None else str(store.mode)}
    check_still_holds(shown, store, reviewed_target=params.target, target=target, now=now)
    entries = sum(int(each["entries"]) for each in noted.value["files"].values())
    return ReviewedCycle(shown, params, entries)


def params_of_plan(
    reviewed: ReviewedCycle, request: CycleRequest, *, target: Mapping[str, object]
) -> CycleParams:
    """The snapshot of a cycle that executes a plan.

    Raises: PlanNotUsable: PLAN_DIFFERS; PeriodMissing.
    """
    planned = reviewed.params
    kinds = planned.kinds if request.kinds is None else request.kinds
    if set(kinds) != set(planned.kinds):
        raise PlanNotUsable("kinds must be those of the plan", code="PLAN_DIFFERS")
    if request.duration is None and planned.period is not None and planned.period <= timedelta(0):
        raise PeriodMissing("name `duration`: the store's je.erase.period was PT0S when the plan was made")
    return CycleParams(
        period=planned.period if request.duration is None else None,
        min_file_age=planned.min_file_age,
        duration=planned.duration if request.duration is None else request.duration,
        follows_period=False,
        follows_kinds=False,
        kinds=sorted(set(kinds), key=list(EraseKind).index),
        engine=request.engine,
        throttle=request.throttle,
        origin=Origin.REQUEST,
        target=dict(target),
        plan_id=request.plan_id,
        max_drift=request.max_drift,
        cutoff=reviewed.shown.cutoff,
        planned_entries=reviewed.entries,
    )


def check_early(
    database: Database, reviewed: ReviewedCycle, directory: Path, *, max_drift: float | None
) -> None:
    """Raise PlanNoLongerHolds where files of the plan are gone and too much with them.

    What else has become of the log the cycle finds out, before its first write.
    """
    with database.reading() as db:
        noted = db.get_one(JobCheckpoint, (reviewed.shown.plan_id, CHECKPOINT_REVIEWED))
    still = sum(
        int(each["entries"])
        for number, each in noted.value["files"].items()
        if _is_there(log_path(directory, int(number)), each)
    )
    fault = drift_fault(reviewed.entries, still, max_drift=max_drift, what=ENTRIES)
    if fault is not None:
        raise PlanNoLongerHolds(fault)


def _is_there(path: Path, noted: Mapping[str, Any]) -> bool:
    try:
        found = path.stat(follow_symlinks=False)
    except OSError:
        return False
    return (found.st_dev, found.st_ino, found.st_size) == (noted["device"], noted["inode"], noted["size"])


# -- the cycle


def within_reviewed(attempt: Attempt, answer: PlanAnswer) -> PlanAnswer:
    """What of a plan was reviewed; all of it where the cycle executes none.

    Raises: JobFailed: nothing was written yet, and less than somebody wants would go.
    """
    from spark.erase.reviewed import within

    params = CycleParams.model_validate(attempt.context.job.params)
    if params.plan_id is None:
        return answer
    plan_id = params.plan_id
    noted = attempt.record.read(lambda db: db.get(JobCheckpoint, (plan_id, CHECKPOINT_REVIEWED)))
    if noted is None:
        raise JobFailed("PLAN_NO_LONGER_HOLDS", NO_ENTRIES)
    bounded = [
        within(file, _reviewed_file(attempt, plan_id, file.number, noted.value)) for file in answer.files
    ]
    answer = replace(answer, files=tuple(bounded))
    fault = drift_fault(
        params.planned_entries or 0,
        sum(file.entry_count for file in answer.files),
        max_drift=params.max_drift,
        what=ENTRIES,
    )
    if fault is not None and not attempt.record.read(lambda db: _is_begun(db, attempt.cycle.id)):
        raise JobFailed("PLAN_NO_LONGER_HOLDS", fault)
    return answer


def _reviewed_file(
    attempt: Attempt, plan_id: str, number: int, noted: Mapping[str, Any]
) -> "ReviewedFile | None":
    from spark.erase.reviewed import ReviewedFile

    found = noted["files"].get(str(number))
    if found is None:
        return None
    part = attempt.record.read(lambda db: db.get_one(JobCheckpoint, (plan_id, _part(number))))
    keys = b64decode(part.value["keys"])
    return ReviewedFile(found["device"], found["inode"], found["size"], keys, deletes=found["deletes"])


def _is_begun(db: Session, cycle_id: str) -> bool:
    """Whether anything was written already; then what is left of the plan is done."""
    query = select(ErasureFile.number).where(
        ErasureFile.cycle_id == cycle_id, col(ErasureFile.was_written).is_(True)
    )
    return db.exec(query.limit(1)).first() is not None


def beside(params: CycleParams, erased: int) -> dict[str, Any]:
    """What was planned, beside what has been erased (entries); nothing where no plan was executed."""
    if params.plan_id is None or params.planned_entries is None:
        return {}
    return {
        "plan_id": params.plan_id,
        "planned": {ENTRIES: params.planned_entries},
        "fewer_than_planned": params.planned_entries - erased,
    }
