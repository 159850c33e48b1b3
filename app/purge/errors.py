"""Errors of purges.

ServiceError -> FutureCutoff, RetentionTooShort, PlanNotUsable, PlanNoLongerHolds, LimitExceeded, EpochAhead
"""

from app.errors import Conflict, PreconditionFailed, Unprocessable


class FutureCutoff(Unprocessable):
    """The cut-off is later than the target's clock."""


class RetentionTooShort(Unprocessable):
    """Below ten minutes only with `force`."""


class PlanNotUsable(Unprocessable):
    """`plan_id` names no finished plan of this store, or the request says something else than the plan."""


class PlanNoLongerHolds(PreconditionFailed):
    """What was reviewed is no longer so."""


class LimitExceeded(Conflict):
    """The plan is larger than the store's limits allow."""


class EpochAhead(Conflict):
    """The target has seen a greater epoch than ours: this metadata is older than what it manages."""


class PermissionMissing(Conflict):
    """The role may not do what the job needs."""
