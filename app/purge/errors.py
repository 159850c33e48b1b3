"""Errors of purges.

ServiceError -> PermissionMissing
"""

from app.errors import Conflict


class PermissionMissing(Conflict):
    """The role may not do what the job needs."""
