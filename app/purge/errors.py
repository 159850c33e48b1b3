"""Errors of purges.

ServiceError -> RetentionTooShort, PermissionMissing
"""

from app.errors import Conflict, Unprocessable


class RetentionTooShort(Unprocessable):
    """Below ten minutes only with `force`."""


class PermissionMissing(Conflict):
    """The role may not do what the job needs."""
