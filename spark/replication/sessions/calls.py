"""What a supplier asks a consumer for, and what it is granted; values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from spark.formats.csn import Csn
from spark.formats.part import Part
from spark.replication.proofs.values import History
from spark.replication.records import ReplicaRow, SessionMode


@dataclass(frozen=True, slots=True)
class Resuming:
    """Which copy a TOTAL would go on with.

    Attributes:
        sessions: earlier sessions whose copy it is: they ended before it was complete.
        after: the last entry that the consumer has acknowledged; one that has less was put back since.
        is_anew: whatever is there, the copy begins anew.
    """

    sessions: tuple[str, ...] = ()
    after: tuple[bytes, bytes] | None = None
    is_anew: bool = False


@dataclass(frozen=True, slots=True)
class Acquire:
    """What a supplier asks with.

    Attributes:
        ruv: its snapshot's. TOTAL: what the copy holds of every replica at least.
        csn_now: what its generator would give now: its clock.
        capabilities: what it takes, as a consumer of somebody else.
        extinctions: of each replica id the greatest CSN of the extinctions that it has.
        history: None: it proves nothing, and an admin lets it.
        is_trusted: an admin lets it speak for other replicas without their signature.
        resuming: TOTAL: what it knows of a copy that was begun before.
        part: which keys it sends; None: all.
        holds: which keys it has itself; None: all.
    """

    session_id: str
    mode: SessionMode
    supplier_store: str
    supplier_rid: int
    generation: str | None
    ruv: Mapping[int, Csn]
    csn_now: Csn
    lease_s: float
    discard_consumer_changes: bool = False
    capabilities: frozenset[str] = frozenset()
    extinctions: Mapping[int, Csn] = field(default_factory=dict)
    history: History | None = None
    is_trusted: bool = False
    resuming: Resuming = field(default_factory=Resuming)
    part: Part | None = None
    holds: Part | None = None


@dataclass(frozen=True, slots=True)
class Acquired:
    """A granted lease.

    Attributes:
        generation, ruv: None where there is none, or where half a copy makes them worthless.
        is_copied, resume_after: TOTAL: whether the copy is complete, and the last entry that it has.
        copied: TOTAL: of each replica id the greatest CSN among the entries that were copied.
        entries: TOTAL: how many were copied; None: not known.
        buried: TOTAL: the bound that comes with them; None: nothing was purged.
        unproven: replica ids of which the supplier's CSN has left this changelog: nobody can compare them.
    """

    epoch: int
    expires_at: datetime
    replica: ReplicaRow
    generation: str | None
    ruv: Mapping[int, Csn] | None
    purged: Mapping[int, Csn]
    is_copied: bool = False
    resume_after: tuple[bytes, bytes] | None = None
    copied: Mapping[int, Csn] = field(default_factory=dict)
    entries: int | None = None
    buried: Csn | None = None
    history: History | None = None
    unproven: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of a total initialisation.

    Attributes:
        incarnation: the replica's new one; nobody mistakes it for what it was before.
        adopt: told of the incarnation and the greatest own CSN before the replica is readable: whoever
            remembers other ones would take it for one that was put back from a backup.
    """

    incarnation: str
    adopt: Callable[[str, Csn | None], None]


@dataclass(frozen=True, slots=True)
class Released:
    """A replica as a session leaves it."""

    replica: ReplicaRow
    ruv: Mapping[int, Csn]
