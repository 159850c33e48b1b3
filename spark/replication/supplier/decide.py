"""Which changes does a consumer need: the decision core, pure and total.

WINDOW is rule C of facts/replication-decision-table, lossless. CLASSIC is the document's own way: an anchor
in the changelog from which everything is read, and for later loads its cases 1, 2, 3.1, 3.2. Both refuse what
cannot be sent without loss, which the document does not: NEEDS_TOTAL.

Where the document is silent or contradicts itself (K1 to K12 of the table): a replica that needs nothing is
left out first, so no minimum is taken over an empty set and the cases stop; ties prefer the inclusive anchor;
the consumer's own replica is one like any other; what was purged is asked of the purge vector, not of the
presence of one anchor.

Preconditions, which the caller must keep (P1 to P4): the supplier's vectors are one snapshot taken before
anything is read; its RUV passes no uncommitted change; the consumer's RUV is honest; `purged` is the greatest
CSN of a replica that ever left.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spark.formats.csn import Csn

Vector = Mapping[int, Csn]


class Strategy(StrEnum):
    """How the starting point is found."""

    WINDOW = "WINDOW"
    CLASSIC = "CLASSIC"


class Outcome(StrEnum):
    """What follows for the session."""

    UP_TO_DATE = "UP_TO_DATE"
    SEND = "SEND"
    NEEDS_TOTAL = "NEEDS_TOTAL"


class Reason(StrEnum):
    """Why changes cannot bring the consumer level."""

    GENERATION_MISMATCH = "GENERATION_MISMATCH"
    NO_RUV = "NO_RUV"
    PURGED = "PURGED"


@dataclass(frozen=True, slots=True)
class Supplier:
    """The supplier's vectors, all of one snapshot; a replica without an entry in `purged` lost nothing."""

    ruv: Vector
    min: Vector = field(default_factory=dict)
    purged: Vector = field(default_factory=dict)
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class Consumer:
    """What the consumer presents; `ruv` is None where it has none at all."""

    ruv: Vector | None
    generation: str | None = None


@dataclass(frozen=True, slots=True)
class Previous:
    """CLASSIC, from the second load on: the RUV of the load before, and the last CSN that its buffer held."""

    ruv: Vector
    csn_buffer: Csn


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where reading begins: at `csn` or after it; None is the beginning of the changelog."""

    csn: Csn | None
    inclusive: bool

    @property
    def sort_key(self) -> tuple[str, bool]:
        """Orders by what is read first: of two anchors at one CSN the inclusive one."""
        return ("" if self.csn is None else str(self.csn), not self.inclusive)


@dataclass(frozen=True, slots=True)
class Window:
    """The missing changes of one replica: above `after` (None: from the first), up to and with `upto`."""

    after: Csn | None
    upto: Csn

    def __contains__(self, csn: str) -> bool:
        return (self.after is None or csn > self.after) and csn <= self.upto


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome with its grounds.

    Attributes:
        need: replicas of which the consumer lacks changes, ascending; empty where no RUVs could be compared.
        blocked_rids: those of `need` whose missing changes have left the changelog.
        anchor: CLASSIC's; with NEEDS_TOTAL the one from which the document would have sent, and lost.
        windows: by replica; empty unless the outcome is SEND.
    """

    outcome: Outcome
    need: tuple[int, ...] = ()
    blocked_rids: tuple[int, ...] = ()
    reason: Reason | None = None
    anchor: Anchor | None = None
    windows: Mapping[int, Window] = field(default_factory=dict)


def decide(
    supplier: Supplier, consumer: Consumer, *, strategy: Strategy, previous: Previous | None = None
) -> Decision:
    """Compare both sides and say what the session has to do; any two vectors have an answer.

    Args:
        previous: only CLASSIC looks at it; WINDOW always starts anew from what is missing.
    Source: facts/replication-decision-table, sections 1, 2 and 6; replication-session-changelog.
    """
    if consumer.ruv is None:
        return Decision(Outcome.NEEDS_TOTAL, reason=Reason.NO_RUV)
    if supplier.generation != consumer.generation:
        return Decision(Outcome.NEEDS_TOTAL, reason=Reason.GENERATION_MISMATCH)
    need = tuple(sorted(rid for rid in supplier.ruv if _lacks(consumer.ruv.get(rid), supplier.ruv[rid])))
    if not need:
        return Decision(Outcome.UP_TO_DATE)
    anchor = None
    if strategy is Strategy.CLASSIC:
        anchor = min((_start(rid, supplier, consumer.ruv, previous) for rid in need), key=_first_read)
    blocked = tuple(rid for rid in need if _is_purged(rid, supplier, consumer.ruv))
    if blocked:
        return Decision(Outcome.NEEDS_TOTAL, need, blocked, Reason.PURGED, anchor)
    windows = {rid: Window(consumer.ruv.get(rid), supplier.ruv[rid]) for rid in need}
    return Decision(Outcome.SEND, need, anchor=anchor, windows=windows)


def _lacks(seen: Csn | None, known: Csn) -> bool:
    return seen is None or seen < known


def _is_purged(rid: int, supplier: Supplier, seen: Vector) -> bool:
    """Equal to the purge point is enough: what the consumer lacks lies above it."""
    purged = supplier.purged.get(rid)
    return purged is not None and _lacks(seen.get(rid), purged)


def _first_read(anchor: Anchor) -> tuple[str, bool]:
    return anchor.sort_key


def _start(rid: int, supplier: Supplier, seen: Vector, previous: Previous | None) -> Anchor:
    """csnStart(X) of a replica that needs something."""
    if previous is not None:
        before = previous.ruv.get(rid)
        # 1] nothing new since the last load; 2] its former end still lies ahead: the buffer goes on.
        if before is not None and (before == supplier.ruv[rid] or before >= previous.csn_buffer):
            return Anchor(previous.csn_buffer, inclusive=False)
        # 3.1] and 3.2]: the same as at the first load.
    after = seen.get(rid)
    if after is not None:
        return Anchor(after, inclusive=False)
    return Anchor(supplier.min.get(rid), inclusive=True)
