"""Which records between an anchor and the end of a buffer are sent: the document's skip rules, in order.

Rules:
- a change of a replica that the snapshot does not know, or above the snapshot's CSN of it, is never sent:
  between it and the snapshot there may be changes that are not in the changelog yet; the next window has it;
- `seen` only grows, and only by a change that is sent; a change at or below it is never sent;
- records are judged in the order of their CSNs, so after one that is beyond the snapshot no later one of its
  replica is sent either.
Source: facts/replication-decision-table, section 3 (S1 to S6).
"""

from enum import StrEnum

from spark.formats.csn import Csn
from spark.replication.supplier.decide import Vector


class Verdict(StrEnum):
    """What becomes of one record; the values name the session's counters."""

    SENT = "sent"
    COVERED = "covered"
    BEYOND_SNAPSHOT = "beyond_snapshot"
    NEW_RID = "new_rid"


class SkipRules:
    """The rules over one snapshot; `seen` is the consumer's vector as it will be after what was sent."""

    def __init__(self, *, snapshot: Vector, seen: Vector) -> None:
        self.snapshot = dict(snapshot)
        self.seen = dict(seen)

    def judge(self, csn: Csn) -> Verdict:
        """Decide on the next record, in the order in which the changelog gives them."""
        rid = csn.rid
        known = self.snapshot.get(rid)
        if known is None:
            return Verdict.NEW_RID
        seen = self.seen.get(rid)
        if seen is not None and csn <= seen:
            return Verdict.COVERED
        if csn > known:
            return Verdict.BEYOND_SNAPSHOT
        self.seen[rid] = csn
        return Verdict.SENT
