"""What a refusal of a replica means to a client."""

from typing import Final

from app.errors import Conflict, PreconditionFailed, ServiceError, Unavailable
from spark.replication.csn_generator import ClockSkewExceeded, TimestampOutOfRange
from spark.replication.errors import ReplicaMissing, ReplicaNotOnline, ReplicationRefused, ReplicaWasRestored
from spark.replication.records import ReplicaStatus
from spark.replication.replica.conditions import CsnDiffers
from spark.replication.replica.local_write import KeyExtinct


class ReplicaRestored(Conflict):
    """The target was put back from a backup: read-only until its own changes are back, or given up."""


class ReplicaPartial(Conflict):
    """The replica holds some keys only: it takes no changes but its supplier's, and supplies nobody."""

    def __init__(self) -> None:
        super().__init__(
            "the replica holds some keys only: write at the replica that supplies it, and let that one supply"
            " others"
        )


class ReplicaInitializing(Conflict):
    """A total initialisation is under way: what is there is not complete."""


class NoReplicaYet(Conflict):
    """The target has no tables of a replica yet."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, code=ReplicaMissing.code)


class ReplicaBusy(Unavailable):
    """Too many changes wait for the replica, or its target is too slow for them."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Retry-After": "1"})


def key_extinct(found: KeyExtinct) -> ServiceError:
    """The problem of a request that names an extinct key: 409 KEY_EXTINCT, with its change's place."""
    return Conflict(
        f"the key of change {found.row} is extinct, says {found.extinction_id}: nothing of the request was"
        " written",
        code="KEY_EXTINCT",
        extra={"extinction_id": found.extinction_id, "row": found.row},
    )


def csn_mismatch(found: CsnDiffers) -> ServiceError:
    """The problem of a request whose condition does not hold: 412 CSN_MISMATCH, with what stands there."""
    if found.csn is None:
        there = "there is no entry"
    else:
        there = f"the entry {'was deleted' if found.is_deleted else 'is'} at {found.csn}"
    return PreconditionFailed(
        f"change {found.row} has another if_csn: {there}; nothing of the request was written. Read the entry"
        " again, and send the change with its CSN",
        code="CSN_MISMATCH",
        extra={"row": found.row, "current_csn": found.csn, "is_tombstone": found.is_deleted},
    )


_RESTORED_HINT: Final = (
    "; it is read-only until a replication session has brought its own changes back, or `lethe recover`"
    " has given them up"
)
Refused = ReplicationRefused | ClockSkewExceeded | TimestampOutOfRange


def refusal(error: Refused, *, upto: str | None = None) -> ServiceError:
    """The problem that a client gets: 409, named for the fact.

    Args:
        upto: of a replica that is RESTORED: the own CSN that must come back.
    """
    if isinstance(error, ReplicaWasRestored):
        return ReplicaRestored(error.detail + _RESTORED_HINT, extra={"restored_upto": error.upto})
    if isinstance(error, ReplicaNotOnline):
        if error.status is ReplicaStatus.PARTIAL:
            return ReplicaPartial()
        if error.status is ReplicaStatus.INITIALIZING:
            return ReplicaInitializing(error.detail)
        return ReplicaRestored(error.detail + _RESTORED_HINT, extra={"restored_upto": upto})
    if isinstance(error, ReplicaMissing):
        return NoReplicaYet(error.detail)
    if isinstance(error, ReplicationRefused):
        return Conflict(error.detail, code=error.code)
    if isinstance(error, ClockSkewExceeded):
        return Conflict(error.detail, code="CLOCK_SKEW", extra={"skew": f"PT{error.skew_s}S"})
    return Conflict(str(error), code="TIMESTAMP_OUT_OF_RANGE")
