"""Errors of stores, and what an error of a target means to a client.

ServiceError -> StoreNotFound, StoreExists, StoreInUse, ExtinctionsKept, StoreSuspended, StoreUrlRefused,
                StoreKindWrong, StoreChanged
"""

from app.errors import BadGateway, Conflict, NotFound, ServiceError, TargetUnavailable, Unprocessable
from spark.targets.errors import (
    TargetAuthFailed,
    TargetCertificateInvalid,
    TargetDatabaseMissing,
    TargetError,
    TargetHostNotAllowed,
    TargetPathRefused,
    TargetUrlInvalid,
)


class StoreNotFound(NotFound):
    """There is no store of this id."""


class StoreExists(Conflict):
    """The id is taken."""


class StoreInUse(Conflict):
    """Jobs of the store have not ended."""


class ExtinctionsKept(Conflict):
    """What was said of the store's keys is written here alone: without it they would count as alive."""


class StoreUrlRefused(Unprocessable):
    """The URL is outside of what this service may touch."""


class StoreKindWrong(Conflict):
    """The store is of another kind than the request is about."""


class StoreChanged(Conflict):
    """The store names another target than the one that was looked at."""

    def __init__(self, detail: str = "the store has changed meanwhile; try again") -> None:
        super().__init__(detail)


def service_error(error: TargetError) -> ServiceError:
    """The problem that a client gets for an error of a target."""
    kind: type[ServiceError] = Conflict
    if error.transient:
        kind = TargetUnavailable
    elif isinstance(error, TargetAuthFailed | TargetCertificateInvalid | TargetDatabaseMissing):
        kind = BadGateway
    elif isinstance(error, TargetUrlInvalid | TargetPathRefused | TargetHostNotAllowed):
        kind = Unprocessable
    headers = {"Retry-After": "5"} if error.transient else {}
    return kind(error.detail, code=error.code, headers=headers)
