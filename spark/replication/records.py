"""What replicas exchange: records, entries, vectors; as columns, and as single values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Final

from spark.formats.arrow import pa
from spark.formats.csn import Csn
from spark.formats.part import Part
from spark.replication.csn_generator import GeneratorState


@cache
def record_schema() -> pa.Schema:
    """Records of a changelog as they travel; `payload` null of a CHANGE is a delete."""
    return pa.schema(
        [
            pa.field("csn", pa.string(), nullable=False),
            pa.field("prev", pa.string()),
            pa.field("kind", pa.string(), nullable=False),
            pa.field("database", pa.binary(), nullable=False),
            pa.field("key", pa.binary(), nullable=False),
            pa.field("payload", pa.binary()),
        ]
    )


@cache
def entry_schema() -> pa.Schema:
    """Entries as a total initialisation carries them."""
    return pa.schema(
        [
            pa.field("database", pa.binary(), nullable=False),
            pa.field("key", pa.binary(), nullable=False),
            pa.field("value", pa.binary()),
            pa.field("csn", pa.string(), nullable=False),
            pa.field("is_tombstone", pa.bool_(), nullable=False),
        ]
    )


@cache
def local_schema() -> pa.Schema:
    """Changes as a client writes them; `value` null deletes."""
    return pa.schema(
        [
            pa.field("database", pa.binary(), nullable=False),
            pa.field("key", pa.binary(), nullable=False),
            pa.field("value", pa.binary()),
        ]
    )


@cache
def write_schema() -> pa.Schema:
    """The same with what each depends on: a CSN, `none`, or null."""
    return local_schema().append(pa.field("if_csn", pa.string()))


class RecordKind(StrEnum):
    """The kinds that this version applies; the column is open for others.

    WITHHELD: a change of keys that a PARTIAL replica does not hold; its payload is the change's digest.
    """

    CHANGE = "CHANGE"
    KEEPALIVE = "KEEPALIVE"
    EXTINCTION = "EXTINCTION"
    WITHHELD = "WITHHELD"


class ReplicaStatus(StrEnum):
    """What may be asked of a replica.

    EMPTY: it has no generation yet. INITIALIZING: a total initialisation is under way. RESTORED: it lacks
    own changes that others have seen, or may have: read-only until they are back. PARTIAL: it holds some
    keys only; it writes nothing of its own and supplies nobody.
    """

    EMPTY = "EMPTY"
    ONLINE = "ONLINE"
    INITIALIZING = "INITIALIZING"
    RESTORED = "RESTORED"
    PARTIAL = "PARTIAL"


TRIMMED: Final = frozenset({ReplicaStatus.ONLINE, ReplicaStatus.EMPTY, ReplicaStatus.PARTIAL})
"""Those whose changelog may be trimmed."""


class SessionMode(StrEnum):
    """What a session brings."""

    INCREMENTAL = "INCREMENTAL"
    TOTAL = "TOTAL"


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """Who a replica is.

    Attributes:
        part: which keys it holds, or will when its copy is complete; None: all.
        buried: the greatest CSN of the tombstones that were purged here; None: none was.
    """

    rid: int
    generation: str | None
    incarnation: str
    status: ReplicaStatus
    restored_upto: Csn | None = None
    part: Part | None = None
    buried: Csn | None = None

    @property
    def status_when_level(self) -> ReplicaStatus:
        """What it is once a copy is complete, or a loss is over."""
        return ReplicaStatus.ONLINE if self.part is None else ReplicaStatus.PARTIAL


@dataclass(frozen=True, slots=True)
class Vectors:
    """RUV, first CSNs and purge vector of a replica, all of one moment."""

    ruv: Mapping[int, Csn] = field(default_factory=dict)
    min: Mapping[int, Csn] = field(default_factory=dict)
    purged: Mapping[int, Csn] = field(default_factory=dict)
    last_modified_s: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a session decides by, read in one transaction."""

    replica: ReplicaRow
    vectors: Vectors
    generator: GeneratorState
