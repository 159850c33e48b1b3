"""What goes over the wire between a supplier and its consumer; the batches themselves are Arrow or NDJSON."""

from base64 import b64decode
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AwareDatetime,
    ConfigDict,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from app.kit.model import Model
from app.replication.consumer import examples as peer_examples
from app.replication.consumer.errors import ProtocolUnknown
from app.replication.consumer.fields import (
    CsnText,
    Generation,
    HistoryBody,
    HistoryShown,
    Lease,
    Name,
    RuvMap,
    RuvRead,
    SessionIdText,
)
from app.replication.peer.answers import shown_position
from app.replication.replica.models import KeyPrefix, KeyPrefixes, shown_keys
from spark.formats.csn import RID_MAX, RID_MIN
from spark.replication.consumer.apply import Applied
from spark.replication.records import SessionMode
from spark.replication.sessions.begin import CAPABILITIES
from spark.replication.sessions.calls import Acquired, Resuming

PROTOCOL: Final = 1
SESSIONS_MAX: Final = 20
HOLDS: Final = "Which keys it holds; null: all. Another part, or none, is refused."


def _shown(example: dict[str, Any], *, extra: Literal["forbid", "ignore"] = "forbid") -> ConfigDict:
    return ConfigDict(extra=extra, json_schema_extra={"examples": [example]})


class SupplierIntroduction(Model):
    """Who asks, and what it has: all of one snapshot. Members that a later version adds are passed over."""

    model_config = ConfigDict(extra="ignore")

    store: Name
    rid: int = Field(ge=RID_MIN, le=RID_MAX)
    generation: Generation
    ruv: RuvMap = Field(description="TOTAL: what the copy holds of every replica at least.")
    csn_now: CsnText = Field(description="What its generator would give now.")
    capabilities: list[Annotated[str, StringConstraints(max_length=40)]] = Field(max_length=100)
    extinctions: RuvMap = Field(
        default_factory=dict, description="The greatest CSN of the extinctions that it has, of each replica."
    )
    history: HistoryBody = Field(default=None, description="What it proves of its history.")
    signature: Annotated[str, StringConstraints(pattern="^[0-9a-f]{128}$")] | None = Field(
        default=None,
        description="With a history: Ed25519, by the key that it shows, over this acquire: "
        "`lethe acquire 1`, NUL, RID (4 bytes, big endian), csn_now, session_id, NUL, the consumer's store.",
    )
    holds: KeyPrefixes | None = Field(default=None, description="Which keys it has itself; null: all.")


class EntryPosition(Model):
    """An entry, by standard base64."""

    database: str
    key: str


class ResumingBody(Model):
    """TOTAL: which copy the supplier would go on with. Members that a later version adds are passed over."""

    model_config = ConfigDict(extra="ignore")

    sessions: list[SessionIdText] = Field(
        default=[], max_length=SESSIONS_MAX, description="Earlier sessions whose copy it is."
    )
    after: EntryPosition | None = Field(
        default=None, description="The last entry that was acknowledged; a replica that has less begins anew."
    )
    is_anew: bool = Field(default=False, description="Go on with nothing: begin the copy anew.")

    @field_validator("after")
    @classmethod
    def _readable(cls, value: EntryPosition | None) -> EntryPosition | None:
        if value is not None:
            read_position(value)
        return value

    def wanted(self) -> Resuming:
        """As the rules of a session take it."""
        after = None if self.after is None else read_position(self.after)
        return Resuming(tuple(self.sessions), after, self.is_anew)


class AcquireRequest(Model):
    """Asks for the lease of a replica. Members that a later version adds are passed over."""

    model_config = _shown(peer_examples.ACQUIRE, extra="ignore")

    protocol: Literal[1]
    session_id: SessionIdText
    mode: SessionMode
    supplier: SupplierIntroduction
    lease: Lease = timedelta(seconds=60)
    discard_consumer_changes: bool = Field(
        default=False,
        description="TOTAL: what only the consumer has is given up, if an admin there has granted it.",
    )
    resuming: ResumingBody = Field(
        default_factory=ResumingBody, description="TOTAL: which copy it would go on with."
    )
    part: KeyPrefixes | None = Field(
        default=None, description="Which keys are sent; null: all. The replica holds the same, or is new."
    )

    @model_validator(mode="before")
    @classmethod
    def _known_protocol(cls, value: Any) -> Any:
        """Before all else: of another protocol nobody knows what the fields mean."""
        if isinstance(value, Mapping):
            asked = value.get("protocol")
            if isinstance(asked, int) and asked != PROTOCOL:
                raise ProtocolUnknown(f"this replica speaks protocol {PROTOCOL}, not {asked}")
        return value


class ConsumerState(Model):
    """The consumer as it stands; `ruv` null: it has none, or half a copy."""

    rid: int
    status: str
    generation: str | None
    ruv: RuvRead | None
    purged: RuvRead
    part: list[KeyPrefix] | None = Field(default=None, description=HOLDS)


class PeerLimits(Model):
    """What the consumer takes at a time; `batch_bytes` as a batch arrives, and when it is decoded."""

    batch_rows: int
    batch_bytes: int
    in_flight: int


class CopyRead(Model):
    """How far a total initialisation has come; `is_copied`: changes follow, no entries."""

    resume_after: EntryPosition | None
    is_copied: bool
    copied: RuvRead = Field(
        default_factory=dict, description="Of each replica the greatest CSN among the entries that are here."
    )
    entries: int | None = Field(
        default=None,
        description="How many are here; null: its copy was begun by a version that did not count.",
    )
    buried: str | None = Field(
        default=None,
        description="The greatest CSN of the tombstones that may be missing among them; null: none.",
    )


class AcquiredRead(Model):
    """A granted lease."""

    model_config = _shown(peer_examples.ACQUIRED)

    session_id: str
    epoch: int
    expires_at: AwareDatetime
    consumer: ConsumerState
    capabilities: list[str]
    limits: PeerLimits
    total: CopyRead | None
    history: HistoryShown = None
    unproven: list[int] = Field(
        default_factory=list, description="Replicas of which the histories cannot be compared: trimmed."
    )

    @classmethod
    def of(cls, session_id: str, found: Acquired, *, mode: SessionMode, limits: PeerLimits) -> Self:
        """As the wire has it."""
        consumer = ConsumerState(
            rid=found.replica.rid,
            status=found.replica.status.value,
            generation=found.generation,
            ruv=None if found.ruv is None else shown_vector(found.ruv),
            purged=shown_vector(found.purged),
            part=shown_keys(found.replica.part),
        )
        after = found.resume_after
        position = None if after is None else EntryPosition.model_validate(shown_position(after))
        copied = shown_vector(found.copied)
        total = CopyRead(
            resume_after=position,
            is_copied=found.is_copied,
            copied=copied,
            entries=found.entries,
            buried=found.buried,
        )
        return cls(
            session_id=session_id,
            epoch=found.epoch,
            expires_at=found.expires_at,
            consumer=consumer,
            capabilities=list(CAPABILITIES),
            limits=limits,
            total=total if mode is SessionMode.TOTAL else None,
            history=None if found.history is None else found.history.document(),
            unproven=list(found.unproven),
        )


class RejectedRead(Model):
    """A record that the consumer cannot keep; later ones of its replica are not applied."""

    rid: int
    csn: str
    code: str
    detail: str


class AppliedRead(Model):
    """The acknowledgement of a batch: each of its rows is applied, covered, rejected or halted."""

    model_config = _shown(peer_examples.APPLIED)

    batch_seq: int
    applied: int
    covered: int = Field(description="Were here already.")
    rejected: list[RejectedRead]
    halted: int = Field(description="Stand behind a rejected one of their replica.")
    ruv: RuvRead
    expires_at: AwareDatetime
    replayed: bool = Field(description="The batch was here before; nothing was applied now.")
    extinct: dict[str, int] = Field(
        default_factory=dict,
        description="Of the applied ones, by RID: changes of extinct keys, which no entry shows.",
    )

    @classmethod
    def of(cls, found: Applied) -> Self:
        """As the wire has it."""
        rejected = [
            RejectedRead(rid=each.csn.rid, csn=each.csn, code=each.code, detail=each.detail)
            for each in found.rejected
        ]
        return cls(
            batch_seq=found.batch_seq,
            applied=found.applied,
            covered=found.covered,
            rejected=rejected,
            halted=found.halted,
            ruv=shown_vector(found.ruv),
            expires_at=found.expires_at,
            replayed=found.replayed,
            extinct={str(rid): count for rid, count in sorted(found.extinct.items())},
        )


class RenewLeaseRequest(Model):
    """Asks for more time."""

    model_config = _shown(peer_examples.RENEW)

    epoch: int = Field(ge=1)
    lease: Lease = timedelta(seconds=60)


class LeaseRead(Model):
    """Until when the lease is the supplier's."""

    model_config = _shown({"expires_at": peer_examples.EXPIRES_AT})

    expires_at: AwareDatetime


class CompleteTotalRequest(Model):
    """All entries were sent; what the supplier had when the copy began."""

    model_config = _shown(peer_examples.COMPLETE_TOTAL)

    epoch: int = Field(ge=1)
    batch_seq: int = Field(
        default=0,
        ge=0,
        le=2**62,
        description="The last batch that was answered; 409 BATCH_GAP if it is not here.",
    )
    ruv: RuvMap
    generation: CsnText
    buried: CsnText | None = Field(
        default=None,
        description="The greatest CSN of the tombstones that the supplier had purged; null: none.",
    )


class ReplicaRuvRead(Model):
    """A RUV."""

    model_config = _shown({"ruv": peer_examples.RELEASED["ruv"]})

    ruv: RuvRead


class ReleasedRead(Model):
    """The replica as a session has left it."""

    model_config = _shown(peer_examples.RELEASED)

    ruv: RuvRead
    status: str


class PointRead(Model):
    """A CSN in the history of a replica."""

    csn: str
    place: Literal["HERE", "TRIMMED", "FOREIGN", "AHEAD"]
    chain: str | None = Field(description="null: it is from before there was a chain, or not here.")


class PeerReplicaRead(Model):
    """A replica as its peers may see it at any time."""

    model_config = _shown(peer_examples.REPLICA)

    rid: int
    status: str
    generation: str | None
    incarnation: str
    ruv: RuvRead | None
    min: RuvRead
    purged: RuvRead
    lines: list[str] = Field(description="The RUV in 389's text form.")
    capabilities: list[str]
    history: HistoryShown = None
    points: dict[str, PointRead] = Field(default_factory=dict, description="By RID, of `at`.")
    part: list[KeyPrefix] | None = Field(default=None, description=HOLDS)
    buried: str | None = Field(
        default=None,
        description="The greatest CSN of the tombstones that were purged here: an older change is refused.",
    )


def shown_vector(vector: Mapping[int, str]) -> dict[str, str]:
    """A vector as JSON has it, by ascending RID."""
    return {str(rid): str(vector[rid]) for rid in sorted(vector)}


def read_position(value: EntryPosition) -> tuple[bytes, bytes]:
    """(database, key).

    Raises: ValueError: no base64.
    """
    return b64decode(value.database, validate=True), b64decode(value.key, validate=True)
