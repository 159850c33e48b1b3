"""A plan that somebody has reviewed, when it comes back as `plan_id`: is it still what was reviewed?"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from sqlmodel import Session

from app.jobs.errors import LimitExceeded, PlanNoLongerHolds, PlanNotUsable
from app.jobs.plans.plans import JOB_PLAN
from app.jobs.rows import Job
from app.jobs.states import JobState
from app.kit.instants import instant_text
from app.stores.models import StoreLimits
from app.stores.rows import Store

NO_PLAN_HERE: Final = "plan_id names no finished plan of this store"


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


def finished_plan(db: Session, store: Store, plan_id: str, *, detail: str = NO_PLAN_HERE) -> Job:
    """The job of a plan of this store that has come to its end.

    Raises: PlanNotUsable: `plan_id` names no such job, says `detail`.
    """
    job = db.get(Job, plan_id)
    if job is None or (job.kind, job.store, job.state) != (JOB_PLAN, store.id, JobState.SUCCEEDED):
        raise PlanNotUsable(detail)
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
    if (limits.max_rows, limits.max_fraction) != (plan.limits.max_rows, plan.limits.max_fraction):
        raise PlanNoLongerHolds("the store's limits have changed since the plan")
    if plan.limits.exceeded:
        raise LimitExceeded("; ".join(plan.limits.exceeded))
