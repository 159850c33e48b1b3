"""What a consumer's refusal means to its supplier.

ServiceError -> ProtocolUnknown 422, TooManyBatches 429; spark.replication.session_errors by their own codes.
"""

import math
from typing import Final

from app.errors import Conflict, Gone, NotFound, ServiceError, TooLarge, TooMany, Unprocessable
from app.replication.replica.refusals import refusal
from spark.formats.changes.errors import BatchTooLarge, BatchUnreadable
from spark.replication.csn_generator import ClockSkewExceeded, TimestampOutOfRange
from spark.replication.errors import ReplicationRefused
from spark.replication.session_errors import (
    BatchGap,
    ReplicaBusy,
    ReplicaSupplies,
    SessionEnded,
    SessionNotFound,
    SessionRefused,
)

BUSY_RETRY_MAX_S: Final = 3
"""A session ends long before its lease, as a rule; 389 looks again after the same time."""

PeerFault = BatchTooLarge | BatchUnreadable | ClockSkewExceeded | ReplicationRefused | TimestampOutOfRange


class ProtocolUnknown(Unprocessable):
    """The supplier speaks a protocol that this version does not."""


class TooManyBatches(TooMany):
    """More batches of one session, or of all, than are taken at a time; nothing was read of this one."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Retry-After": "1"})


def peer_problem(error: PeerFault) -> ServiceError:
    """The problem that a supplier gets."""
    if isinstance(error, BatchTooLarge):
        return TooLarge(error.detail, code=error.code)
    if isinstance(error, BatchUnreadable):
        return Unprocessable(error.detail, code=error.code)
    if not isinstance(error, SessionRefused):
        return refusal(error)
    kinds: dict[type[SessionRefused], type[ServiceError]] = {SessionEnded: Gone, SessionNotFound: NotFound}
    problem = kinds.get(type(error), Conflict)(error.detail, code=error.code, extra=error.facts)
    if isinstance(error, ReplicaBusy | ReplicaSupplies | BatchGap):
        problem.retryable = True
        problem.headers["Retry-After"] = str(_retry_after_s(error))
    return problem


def _retry_after_s(error: ReplicaBusy | ReplicaSupplies | BatchGap) -> int:
    if isinstance(error, BatchGap):
        return 1
    if isinstance(error, ReplicaSupplies):
        return BUSY_RETRY_MAX_S
    return max(1, min(math.ceil(error.expires_in_s), BUSY_RETRY_MAX_S))
