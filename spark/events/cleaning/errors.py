"""Why a cleanup or a log switch ends.

TargetError
├── UnconfirmedWouldGo    UNCONFIRMED_WOULD_GO    the program's function would lose what nobody confirmed
│   └── LogStillWritten                           only as long as some sessions have not ended
├── BeyondReviewed        PLAN_NO_LONGER_HOLDS    the program's function would remove more than was reviewed
└── TargetLockTimeout
    └── ClusterLocked     CLUSTER_LOCKED          transient: somebody else works on the cluster
"""

from collections.abc import Sequence

from spark.events.cleaning.records import Session
from spark.targets.errors import TargetError, TargetLockTimeout


class ClusterLocked(TargetLockTimeout):
    code = "CLUSTER_LOCKED"


class UnconfirmedWouldGo(TargetError):
    code = "UNCONFIRMED_WOULD_GO"


class BeyondReviewed(TargetError):
    code = "PLAN_NO_LONGER_HOLDS"


class LogStillWritten(UnconfirmedWouldGo):
    """Nothing but sessions from before a switch is in the way.

    Attributes:
        writers: those that may still write to the old table.
    """

    def __init__(self, detail: str, writers: Sequence[Session]) -> None:
        super().__init__(detail)
        self.writers = tuple(writers)
