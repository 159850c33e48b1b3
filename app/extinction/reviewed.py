"""The records of a reviewed plan of an extinction: whether they are what it would reach now.

An extinction is a range and cannot leave out what came since the review: where anything did, it is refused.
A replica knows it by its history: a record whose CSN the RUV of the plan does not cover was written since. Of
a JE log the plan keeps the keys.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from sqlmodel import Session

from app.extinction.models import ExtinctionPlanRead, PlanParams
from app.jobs.errors import PlanNoLongerHolds, PlanNotUsable
from app.jobs.plans.reviewed_plan import check_still_holds, drift_fault, finished_plan
from app.jobs.rows import Job, JobCheckpoint
from app.jobs.running.context import JobContext
from app.replication.agreements.sessions.service import target_of_store
from app.stores.models import StoreKind
from app.stores.rows import Store
from spark.extinction.counting import count_since
from spark.formats.arrow import np
from spark.formats.csn import Csn
from spark.formats.extinction import Extinction
from spark.targets.connection import Connection

CHECKPOINT_REVIEWED: Final = "reviewed"
KEYS_KEPT_MAX: Final = 5_000_000
"""Of a JE log; a plan with more is shown, and cannot be executed."""
PART_KEYS: Final = 250_000
NOT_KEPT: Final = "the plan kept no records (of an earlier version, or too many of them): plan again, or less"
NO_EXTINCTION_PLAN: Final = "plan_id names no finished plan of an extinction here"
RECORDS: Final = "records"


@dataclass(frozen=True, slots=True)
class ReviewedExtinction:
    """A plan that a request names.

    Args:
        records: that it would reach.
        ruv: of the replica when they were counted.
        keys: of a JE environment (CountAnswer.keys).
    """

    plan_id: str
    records: int
    max_drift: float | None
    ruv: Mapping[int, Csn] = field(default_factory=dict)
    keys: bytes = b""

    def check_in_replica(self, conn: Connection, extinction: Extinction) -> None:
        """Count in the caller's transaction. Raises: PlanNoLongerHolds."""
        reviewed, since = count_since(conn, extinction, self.ruv)
        self._check(reviewed, since)

    def check_keys(self, keys: bytes) -> None:
        """Compare the keys that a log has now. Raises: PlanNoLongerHolds."""
        now = np.frombuffer(keys, np.uint64)
        known = int(np.isin(now, np.frombuffer(self.keys, np.uint64)).sum())
        self._check(known, len(now) - known)

    def _check(self, still: int, since: int) -> None:
        if since:
            detail = (
                f"{since} records came since the plan, and an extinction cannot leave them out: plan again"
            )
            raise PlanNoLongerHolds(detail)
        fault = drift_fault(self.records, still, max_drift=self.max_drift, what=RECORDS)
        if fault is not None:
            raise PlanNoLongerHolds(fault)


def target_fields(store: Store) -> dict[str, Any]:
    """What tells one target of a store from another."""
    if store.kind == StoreKind.JE:
        return {"path": store.path}
    return target_of_store(store)


def keep_ruv(context: JobContext, ruv: Mapping[int, Csn]) -> None:
    """Keep, with a plan, how far the replica was."""
    context.save_checkpoint(CHECKPOINT_REVIEWED, {"ruv": {str(rid): str(csn) for rid, csn in ruv.items()}})


def keep_keys(context: JobContext, keys: bytes) -> None:
    """Keep the keys of a plan with it, in parts; none where they are too many."""
    found = np.frombuffer(keys, np.uint64)
    if len(found) > KEYS_KEPT_MAX:
        return
    parts = [found[first : first + PART_KEYS] for first in range(0, len(found), PART_KEYS)]
    for number, part in enumerate(parts):
        context.save_checkpoint(_part(number), {"keys": b64encode(part.tobytes()).decode()})
    context.save_checkpoint(CHECKPOINT_REVIEWED, {"parts": len(parts)})


def _part(number: int) -> str:
    return f"{CHECKPOINT_REVIEWED}.{number}"


def find_plan(
    db: Session, store: Store, extinction: Extinction, *, plan_id: str, max_drift: float | None, now: datetime
) -> ReviewedExtinction:
    """The plan that a request names, if it may still be executed.

    Raises: PlanNotUsable, also with PLAN_DIFFERS; PlanNoLongerHolds, LimitExceeded.
    """
    job = finished_plan(db, store, plan_id, of="EXTINCTION", detail=NO_EXTINCTION_PLAN)
    params, noted = (
        PlanParams.model_validate(job.params),
        db.get(JobCheckpoint, (plan_id, CHECKPOINT_REVIEWED)),
    )
    if noted is None:
        raise PlanNoLongerHolds(NOT_KEPT)
    if _range_of(Extinction.parse(params.extinction.encode())) != _range_of(extinction):
        detail = "databases, start_key, end_key and filter must be those of the plan"
        raise PlanNotUsable(detail, code="PLAN_DIFFERS")
    shown = ExtinctionPlanRead.model_validate(job.result)
    check_still_holds(shown, store, reviewed_target=params.target, target=target_fields(store), now=now)
    ruv = {int(rid): Csn(csn) for rid, csn in noted.value.get("ruv", {}).items()}
    keys = b"".join(_keys(db, job, number) for number in range(noted.value.get("parts", 0)))
    return ReviewedExtinction(plan_id, shown.records, max_drift, ruv, keys)


def _keys(db: Session, job: Job, number: int) -> bytes:
    return b64decode(db.get_one(JobCheckpoint, (job.id, _part(number))).value["keys"])


def _range_of(extinction: Extinction) -> Sequence[Any]:
    return (extinction.databases, extinction.start_key, extinction.end_key, extinction.filter)


def params_beside(reviewed: ReviewedExtinction | None) -> dict[str, Any]:
    """What the job of an extinction keeps of the plan that was executed."""
    if reviewed is None:
        return {}
    return {"plan_id": reviewed.plan_id, "planned": {RECORDS: reviewed.records}}


def beside(context: JobContext, records: int) -> dict[str, Any]:
    """What was planned, beside what has gone; nothing where no plan was executed."""
    planned = context.job.params.get("planned")
    if planned is None:
        return {}
    fewer = planned[RECORDS] - records
    return {"plan_id": context.job.params["plan_id"], "planned": planned, "fewer_than_planned": fewer}
