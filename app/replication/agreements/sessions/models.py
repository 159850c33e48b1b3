"""Replication sessions over HTTP: the request, the snapshot that a job keeps, and what is answered."""

from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field

from app.jobs.models import ThrottleSetting
from app.kit.durations import Duration
from app.kit.model import Model
from app.kit.values import Text
from app.replication.agreements.examples import COMPARISON, SESSION
from app.replication.agreements.models import MaxChanges, Span
from app.replication.decide.models import AnchorRead, ReasonName, StrategyName
from app.replication.rows import SessionOutcome, SessionState
from app.settings import EngineChoice

AGREEMENT_PATTERN = r"^agr_[0-9a-z]{26}$"
ModeName = Literal["INCREMENTAL", "TOTAL"]


class SessionRequest(Model):
    """Bring the consumer of an agreement up to date, or make it a copy of this replica."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"agreement_id": "agr_01k9x2m4c6d8e0f2g4h6j8k0mn"}]},
    )

    agreement_id: str = Field(pattern=AGREEMENT_PATTERN)
    mode: ModeName = Field(default="INCREMENTAL", description="TOTAL: entries and vectors as one snapshot.")
    strategy: StrategyName | None = Field(default=None, description="null: the agreement's.")
    max_changes: MaxChanges | None = Field(default=None, description="null: the agreement's.")
    max_duration: Span | None = Field(default=None, description="null: the agreement's.")
    discard_consumer_changes: bool = Field(
        default=False,
        description="TOTAL, for admins: changes that only the consumer has are given up, once an admin "
        "of the consumer has granted it (`discard-grants`); the session waits for that.",
    )
    engine: EngineChoice | None = Field(default=None, description="What reads large windows.")
    throttle: ThrottleSetting | None = None
    reason: Text | None = Field(default=None, max_length=500)


class SessionParams(Model):
    """The snapshot of a session at its submission.

    Attributes:
        consumer: the address then, without the token's reference.
        target: what the store named then.
    """

    agreement_id: str
    mode: ModeName
    strategy: StrategyName
    max_changes: int | None
    max_duration: Duration | None
    discard_consumer_changes: bool
    batch_rows: int
    batch_bytes: int
    in_flight: int
    engine: EngineChoice | None
    throttle: ThrottleSetting | None
    consumer: dict[str, str]
    target: dict[str, Any]


class CompareRequest(Model):
    """Which consumer to compare with."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"agreement_id": "agr_01k9x2m4c6d8e0f2g4h6j8k0mn"}]},
    )

    agreement_id: str = Field(pattern=AGREEMENT_PATTERN)
    strategy: StrategyName | None = Field(default=None, description="null: the agreement's.")


class ReplicaVectorsRead(Model):
    """A replica's vectors at one moment; CSN by RID."""

    rid: int
    status: str
    generation: str | None
    ruv: dict[str, str] | None
    purged: dict[str, str]


ComparedName = Literal["UP_TO_DATE", "SEND", "NEEDS_TOTAL", "DIVERGED", "DUPLICATE_RID", "UNPROVEN"]


class CompareRead(Model):
    """What a session would decide now."""

    model_config = ConfigDict(json_schema_extra={"examples": [COMPARISON]})

    outcome: ComparedName = Field(
        description="DIVERGED: two histories; DUPLICATE_RID: two replicas of one number; UNPROVEN: nothing is"
        " known to be missing, but histories cannot be compared."
    )
    reason: ReasonName | None
    need: list[int]
    blocked_rids: list[int]
    anchor: AnchorRead | None
    windows: dict[str, tuple[str | None, str]]
    diverged: list[int] = Field(default_factory=list, description="RIDs with two histories.")
    unproven: list[int] = Field(default_factory=list, description="RIDs that cannot be compared.")
    missing: dict[str, int] = Field(
        description="Records of this changelog that the consumer lacks, by RID; trimmed ones are not counted."
    )
    missing_total: int
    consumer_ahead: dict[str, str] = Field(
        description="RIDs of which the consumer has changes that the supplier lacks, with its CSN."
    )
    supplier: ReplicaVectorsRead
    consumer: ReplicaVectorsRead


class SessionCounters(Model):
    """What became of the changes of one replica id.

    `read` counts rows of the changelog, so a window that was begun again counts them again.
    """

    read: int = 0
    sent: int = 0
    covered: int = Field(default=0, description="Skipped: the consumer had them (CLASSIC).")
    beyond_snapshot: int = Field(default=0, description="Skipped: left to the next window (CLASSIC).")
    new_rid: int = Field(default=0, description="Skipped: of a replica that the snapshot lacks (CLASSIC).")
    duplicates: int = Field(default=0, description="Sent, and ignored by the consumer: it had them.")
    rejected: int = Field(default=0, description="Refused by the consumer: see dead-letters.")
    extinct: int = Field(
        default=0, description="Acknowledged, of extinct keys: logged by the consumer, shown in no entry."
    )
    acknowledged: int = 0


class ProblemRead(Model):
    """What ended a session, or last held it up."""

    code: str
    detail: str
    rids: list[int] = Field(default=[])
    reason: str | None = None


class TotalRead(Model):
    """How far a total initialisation is.

    Attributes:
        ruv: the snapshot that the copy stands for.
    """

    ruv: dict[str, str]
    generation: str
    entries_sent: int = Field(description="By this session.")
    entries_before: int = Field(
        default=0,
        description="By earlier sessions of the same copy: what the consumer had of it when this one began.",
    )
    continued_from: str | None = Field(
        default=None, description="The earlier session; null: the copy began with this one."
    )
    is_copied: bool
    is_complete: bool


class SessionRead(Model):
    """A session as its supplier's clients see it."""

    model_config = ConfigDict(json_schema_extra={"examples": [SESSION]})

    id: str
    store: str
    agreement_id: str
    job_id: str
    mode: ModeName
    strategy: StrategyName
    engine: str
    state: SessionState
    outcome: SessionOutcome | None
    epoch: int = Field(description="Of the consumer's lease, as it was last granted; 0: never.")
    max_changes: int | None
    max_duration: Duration | None
    supplier: dict[str, Any] | None = Field(description="Vectors at the last decision.")
    consumer: dict[str, Any] | None = Field(description="The consumer as it last described itself.")
    decision: dict[str, Any] | None
    windows: dict[str, tuple[str | None, str]] = Field(description="Of the window under way, or the last.")
    anchors: list[AnchorRead] = Field(description="CLASSIC: from where buffers were loaded, the last ones.")
    counters: dict[str, SessionCounters] = Field(description="By RID.")
    total: TotalRead | None
    windows_done: int
    rows_read: int
    batches_sent: int
    bytes_sent: int
    problem: ProblemRead | None
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    ended_at: datetime | None
