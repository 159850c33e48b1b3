"""A plan that somebody has reviewed, when it comes back as `plan_id`: is it still what was reviewed?"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Protocol

from pydantic import Field
from sqlmodel import Session

from app.jobs.errors import LimitExceeded, PlanNoLongerHolds, PlanNotUsable
from app.jobs.plans.plans import JOB_PLAN
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.instants import instant_text
from app.stores.models import LimitsRead, StoreLimits
from app.stores.rows import Store

NO_PLAN_HERE: Final = "plan_id names no finished plan of this store"
MaxDrift = Annotated[
    Annotated[int, Field(strict=True, ge=0)] | Annotated[float, Field(strict=True, ge=0, lt=1)],
    Field(union_mode="left_to_right"),
]
"""How many fewer than were reviewed may go: a whole number counts them, another one is a share."""
DRIFT_WITHOUT_PLAN: Final = "max_drift is for the execution of a plan: name plan_id"


class ReviewedLimits(Protocol):
    """The store's limits as a plan tells them."""

    @property
    def max_rows(self) -> int | None: ...
    @property
    def max_fraction(self) -> float | None: ...
    @property
    def exceeded(self) -> list[str]: ...


class ReviewedPlan(Protocol):
    """What the plans of all domains have in common."""

    @property
    def expires_at(self) -> datetime: ...
    @property
    def limits(self) -> ReviewedLimits: ...


def finished_plan(
    db: Session, store: Store, plan_id: str, *, of: str | None = None, detail: str = NO_PLAN_HERE
) -> Job:
    """The job of a plan of this store that has come to its end.

    Args:
        of: what is planned, where kinds of jobs share the way here.
    Raises: PlanNotUsable: `plan_id` names no such job, says `detail`.
    """
    job = db.get(Job, plan_id)
    if job is None or (job.kind, job.store, job.state) != (JOB_PLAN, store.id, JobState.SUCCEEDED):
        raise PlanNotUsable(detail)
    if of is not None and job.params.get("plan") != of:
        raise PlanNotUsable(detail)
    return job


def finished_purge_plan(db: Session, store: Store, plan_id: str, *, kind: str) -> Job:
    """The same, of a purge of this kind.

    Raises: PlanNotUsable: as `finished_plan`, or with PLAN_DIFFERS.
    """
    job = finished_plan(db, store, plan_id)
    if (job.result or {}).get("kind") != kind:
        raise PlanNotUsable("the plan is of another kind", code="PLAN_DIFFERS")
    return job


def check_still_holds(
    plan: ReviewedPlan,
    store: Store,
    *,
    reviewed_target: Mapping[str, Any],
    target: Mapping[str, Any],
    now: datetime,
) -> None:
    """Return when a plan may still be executed.

    Args:
        reviewed_target: what told the store's target from others when the plan was made.
        target: the same, now.
    Raises:
        PlanNoLongerHolds: it has expired, or the store has changed.
        LimitExceeded: the plan itself is too large.
    """
    if plan.expires_at <= now:
        raise PlanNoLongerHolds(f"the plan expired at {instant_text(plan.expires_at)}")
    if reviewed_target != target:
        raise PlanNoLongerHolds("the store's target has changed since the plan")
    limits = StoreLimits.model_validate(store.limits)
    judged = plan.limits
    same = (limits.max_rows, limits.max_fraction) == (judged.max_rows, judged.max_fraction)
    if not same or (isinstance(judged, LimitsRead) and judged.max_bytes != limits.max_bytes):
        raise PlanNoLongerHolds("the store's limits have changed since the plan")
    if plan.limits.exceeded:
        raise LimitExceeded("; ".join(plan.limits.exceeded))


def allowed_fewer(max_drift: float, planned: int) -> int:
    """A whole number counts what was planned, another one is a share of it."""
    return max_drift if isinstance(max_drift, int) else int(planned * max_drift)


def drift_fault(planned: int, still: int, *, max_drift: float | None, what: str = "rows") -> str | None:
    """Why a plan does not hold any more; None: as much of it would go now as somebody wants.

    Args:
        planned: what was reviewed; still: of that, what would go now.
        max_drift: None: any number may be missing.
    """
    if max_drift is None:
        return None
    allowed = allowed_fewer(max_drift, planned)
    if planned - still <= allowed:
        return None
    return (
        f"{planned} {what} were reviewed, {still} of them would go now: {planned - still} fewer,"
        f" and max_drift allows {allowed}; plan again"
    )
