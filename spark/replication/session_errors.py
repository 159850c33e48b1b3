"""Why a consumer refuses a supplier. Nothing of the refused request has been done.

SessionRefused                SESSION_REFUSED         never raised itself
├── ClockSkewed               CLOCK_SKEW              a clock is too far off
├── DuplicateRid              DUPLICATE_RID           two replicas bear one number
├── HistoryDiverged           DIVERGED                two histories of one replica id
├── HistoryUnproven           HISTORY_UNPROVEN        a claim about this replica that it has not signed
├── ChangesUnproven           CHANGES_UNPROVEN        changes that their replica has not signed
├── PartDiffers               PART_DIFFERS            the replica holds, or would, other keys than are sent
├── SupplierPartial           SUPPLIER_PARTIAL        a replica that holds some keys only supplies nobody
├── ProofsMissing             PROOFS_MISSING          the peer's version proves nothing
├── ReplicaBusy               REPLICA_BUSY            another supplier holds the lease
├── ConsumerAhead             CONSUMER_AHEAD          a TOTAL would discard changes that the supplier lacks
├── DiscardNotGranted         DISCARD_NOT_GRANTED     it asks to discard them, ungranted by an admin here
├── ReplicaSupplies           REPLICA_SUPPLIES        a TOTAL would discard what another one is about to copy
├── SessionNotFound           SESSION_NOT_FOUND
├── SessionEnded              SESSION_ENDED           released, expired, or taken over
├── StaleEpoch                STALE_EPOCH             the session was acquired again
├── BatchGap                  BATCH_GAP               a batch before this one is missing
├── PrevGap                   PREV_GAP                a record before this one is missing
├── GenerationMismatch        GENERATION_MISMATCH
├── ReplicaInitializing       REPLICA_INITIALIZING    half a copy takes no changes
├── TotalNotUnderWay          TOTAL_NOT_UNDER_WAY     entries, but nobody initialises the replica
├── TotalIncomplete           TOTAL_INCOMPLETE        the copy has not ended
├── TotalRuvDiffers           TOTAL_RUV_DIFFERS       the copy began at another RUV
└── BoundBeyondCopy           BOUND_BEYOND_COPY       tombstones are missing that the copy cannot have had
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from spark.replication.errors import ReplicationRefused


class SessionRefused(ReplicationRefused):
    """A refusal with its facts, as JSON has them."""

    code: ClassVar[str] = "SESSION_REFUSED"

    def __init__(self, detail: str, facts: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.facts = dict(facts or {})

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.detail, self.facts))


class ClockSkewed(SessionRefused):
    """Facts, where a peer's CSN is ahead: csn, rid, ahead_s, ahead_max_s."""

    code = "CLOCK_SKEW"


class SupplierUnproven(SessionRefused):
    """The acquire is not signed by the key that it shows."""

    code = "SUPPLIER_UNPROVEN"


class DuplicateRid(SessionRefused):
    code = "DUPLICATE_RID"


class HistoryDiverged(SessionRefused):
    """Facts: rids."""

    code = "DIVERGED"


class HistoryUnproven(SessionRefused):
    """Facts: rids."""

    code = "HISTORY_UNPROVEN"


class ChangesUnproven(SessionRefused):
    """Facts: rids."""

    code = "CHANGES_UNPROVEN"


class PartDiffers(SessionRefused):
    """Facts: consumer, supplier: each a list of databases and prefixes, or null."""

    code = "PART_DIFFERS"


class SupplierPartial(SessionRefused):
    code = "SUPPLIER_PARTIAL"


class ProofsMissing(SessionRefused):
    code = "PROOFS_MISSING"


class ReplicaBusy(SessionRefused):
    """Facts: supplier_rid, supplier_store, to that supplier also `holder`, its session.

    `expires_in_s` is how long it will hold at most.
    """

    code = "REPLICA_BUSY"

    def __init__(
        self, detail: str, facts: Mapping[str, Any] | None = None, *, expires_in_s: float = 0.0
    ) -> None:
        super().__init__(detail, facts)
        self.expires_in_s = expires_in_s


class ConsumerAhead(SessionRefused):
    """Facts: rids."""

    code = "CONSUMER_AHEAD"


class DiscardNotGranted(SessionRefused):
    """Facts: rids, supplier_rid."""

    code = "DISCARD_NOT_GRANTED"


class ReplicaSupplies(SessionRefused):
    """Facts: session_count, of its own sessions that are about to copy it."""

    code = "REPLICA_SUPPLIES"


class SessionNotFound(SessionRefused):
    code = "SESSION_NOT_FOUND"


class SessionEnded(SessionRefused):
    code = "SESSION_ENDED"


class StaleEpoch(SessionRefused):
    """Facts: epoch."""

    code = "STALE_EPOCH"


class BatchGap(SessionRefused):
    """Facts: expected."""

    code = "BATCH_GAP"

    def __init__(self, detail: str, facts: Mapping[str, Any]) -> None:
        super().__init__(detail, facts)
        self.expected = int(facts["expected"])


class PrevGap(SessionRefused):
    """Facts: rid, csn, prev, ruv."""

    code = "PREV_GAP"


class GenerationMismatch(SessionRefused):
    """Facts: consumer, supplier."""

    code = "GENERATION_MISMATCH"


class ReplicaInitializing(SessionRefused):
    code = "REPLICA_INITIALIZING"


class TotalNotUnderWay(SessionRefused):
    code = "TOTAL_NOT_UNDER_WAY"


class TotalIncomplete(SessionRefused):
    """Facts, where changes of entries are missing: rids."""

    code = "TOTAL_INCOMPLETE"


class TotalRuvDiffers(SessionRefused):
    code = "TOTAL_RUV_DIFFERS"


class BoundBeyondCopy(SessionRefused):
    """Facts: buried, ruv_max."""

    code = "BOUND_BEYOND_COPY"
