"""Errors of purges.

ServiceError -> FutureCutoff, RetentionTooShort, PermissionMissing
"""

from app.errors import Conflict, Unprocessable


class FutureCutoff(Unprocessable):
    """The cut-off is later than the target's clock."""


class RetentionTooShort(Unprocessable):
    """Below ten minutes only with `force`."""


class PermissionMissing(Conflict):
    """The role may not do what the job needs."""
