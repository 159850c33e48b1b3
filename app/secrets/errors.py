"""Errors of secrets.

ServiceError -> SecretNotFound, SecretExists, SecretInUse, SecretReferenceRefused,
                SecretNotAllowed, SecretUnavailable
"""

from app.errors import Conflict, NotFound, Unprocessable


class SecretNotFound(NotFound):
    """There is no secret of this name."""


class SecretExists(Conflict):
    """The name is taken."""


class SecretInUse(Conflict):
    """Stores or agreements name it."""


class SecretReferenceRefused(Unprocessable):
    """What the reference names is not a place for secrets."""


class SecretNotAllowed(Unprocessable):
    """The secret is not for this store, or not for this host; nobody learns whether there is one."""


class SecretUnavailable(Conflict):
    """What a store or agreement names cannot be had now, or not by it."""
