"""Why a replica refuses. Errors of the target itself are TargetErrors.

ReplicationRefused            REPLICATION_REFUSED     never raised itself
├── ReplicaMissing            REPLICA_MISSING         the target has no tables of a replica yet
├── LayoutUnknown             LAYOUT_UNKNOWN          tables of these names are there and are not ours
├── RidDiffers                RID_DIFFERS             the tables belong to another replica id
├── GenerationDiffers         GENERATION_DIFFERS      the tables belong to another generation
├── KeyKnown                  KEY_KNOWN               a replica id has another key than the one that was named
├── ReplicaNotOnline          REPLICA_NOT_ONLINE      its status forbids what was asked
├── ReplicaNotWhole           REPLICATION_REFUSED     RESTORED or INITIALIZING: nothing of it is purged
├── ReplicaPartial            REPLICA_PARTIAL         it holds some keys only: it writes and supplies nothing
└── ReplicaWasRestored        REPLICA_WAS_RESTORED    found just now: its target was put back from a backup
"""

from typing import ClassVar

from spark.replication.records import ReplicaStatus


class ReplicationRefused(Exception):
    """A fact about a replica that forbids what was asked, with a stable `code`."""

    code: ClassVar[str] = "REPLICATION_REFUSED"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class ReplicaMissing(ReplicationRefused):
    code = "REPLICA_MISSING"


class LayoutUnknown(ReplicationRefused):
    code = "LAYOUT_UNKNOWN"


class RidDiffers(ReplicationRefused):
    """The store and its target name different replica ids."""

    code = "RID_DIFFERS"

    def __init__(self, *, found: int, wanted: int) -> None:
        super().__init__(f"the target holds replica {found}, the store is replica {wanted}")
        self.found = found
        self.wanted = wanted

    def __reduce__(self) -> tuple[object, ...]:
        return (_rid_differs, (self.found, self.wanted))


def _rid_differs(found: int, wanted: int) -> RidDiffers:
    return RidDiffers(found=found, wanted=wanted)


class GenerationDiffers(ReplicationRefused):
    """The store and its target name different generations."""

    code = "GENERATION_DIFFERS"

    def __init__(self, *, found: str, wanted: str) -> None:
        super().__init__(f"the target holds generation {found}, the store declares {wanted}")
        self.found = found
        self.wanted = wanted

    def __reduce__(self) -> tuple[object, ...]:
        return (_generation_differs, (self.found, self.wanted))


def _generation_differs(found: str, wanted: str) -> GenerationDiffers:
    return GenerationDiffers(found=found, wanted=wanted)


class KeyKnown(ReplicationRefused):
    code = "KEY_KNOWN"


class ReplicaNotOnline(ReplicationRefused):
    """Its status forbids local writes."""

    code = "REPLICA_NOT_ONLINE"

    def __init__(self, status: ReplicaStatus) -> None:
        super().__init__(f"the replica is {status}: it takes no local writes")
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        return (ReplicaNotOnline, (self.status,))


class ReplicaNotWhole(ReplicationRefused):
    """The replica is RESTORED or INITIALIZING: what it still needs is not known."""

    def __init__(self, status: str) -> None:
        super().__init__(f"a replica that is {status} keeps what it has")
        self.status = status

    def __reduce__(self) -> tuple[object, ...]:
        return (ReplicaNotWhole, (self.status,))


class PlanStopped(Exception):
    """The job must stop; what a purge would remove is not known yet."""


class ReplicaPartial(ReplicationRefused):
    code = "REPLICA_PARTIAL"


class ReplicaWasRestored(ReplicationRefused):
    """The target lacks what it had: it is marked, and read-only until its own changes are back.

    Attributes:
        found_incarnation, found_own_max: what the target held.
        upto: its own CSN that must come back; None where it had written nothing.
    """

    code = "REPLICA_WAS_RESTORED"

    def __init__(self, *, found_incarnation: str, found_own_max: str | None, upto: str | None) -> None:
        super().__init__(
            f"the target was restored from a backup: its own changes end at {found_own_max or 'none'},"
            f" they had reached {upto or 'none'}"
        )
        self.found_incarnation = found_incarnation
        self.found_own_max = found_own_max
        self.upto = upto

    def __reduce__(self) -> tuple[object, ...]:
        return (_was_restored, (self.found_incarnation, self.found_own_max, self.upto))


def _was_restored(found_incarnation: str, found_own_max: str | None, upto: str | None) -> ReplicaWasRestored:
    return ReplicaWasRestored(found_incarnation=found_incarnation, found_own_max=found_own_max, upto=upto)
