"""What goes over the wire between a supplier and its consumer; the batches themselves are Arrow or NDJSON."""

from base64 import b64encode
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from app.kit.durations import Duration
from app.replication.consumer import examples as peer_examples
from app.replication.consumer.errors import ProtocolUnknown
from spark.formats.csn import RID_MAX, RID_MIN, Csn
from spark.formats.ruv import ELEMENTS_MAX, parse_rid
from spark.replication.consumer.apply import Applied
from spark.replication.proofs.values import History
from spark.replication.records import SessionMode
from spark.replication.sessions.session import CAPABILITIES, Acquired

PROTOCOL: Final = 1
LEASE_MIN = timedelta(seconds=1)
LEASE_MAX = timedelta(hours=1)
SESSION_ID = r"^rps_[0-9A-Za-z]{1,60}$"
_CSN_SCHEMA: Final = {"type": "string", "pattern": "^[0-9a-f]{20}$"}
_RUV_SCHEMA: Final = {
    "type": "object",
    "description": "CSN by RID.",
    "propertyNames": {"pattern": "^[1-9][0-9]{0,4}$"},
    "additionalProperties": _CSN_SCHEMA,
    "maxProperties": ELEMENTS_MAX,
}


def _csn(value: Any) -> Csn:
    if not isinstance(value, str):
        raise ValueError("a CSN is a text of 20 hexadecimal digits")
    return Csn(value)


def _ruv(value: Any) -> dict[int, Csn]:
    if not isinstance(value, dict):
        raise ValueError("a RUV is an object of CSNs by RID")
    if len(value) > ELEMENTS_MAX:
        raise ValueError(f"{len(value)} replicas where at most {ELEMENTS_MAX} can be")
    found: dict[int, Csn] = {}
    for key, text in value.items():
        rid, csn = parse_rid(key), _csn(text)
        if csn.rid != rid:
            raise ValueError(f"{csn} is a change of replica {csn.rid}, not of {rid}")
        found[rid] = csn
    return found


def _lease(value: timedelta) -> timedelta:
    if not LEASE_MIN <= value <= LEASE_MAX:
        raise ValueError("from PT1S to PT1H")
    return value


CsnText = Annotated[Csn, PlainValidator(_csn), WithJsonSchema(_CSN_SCHEMA)]
RuvMap = Annotated[dict[int, Csn], PlainValidator(_ruv), WithJsonSchema(_RUV_SCHEMA)]
RuvRead = Annotated[dict[str, str], WithJsonSchema(_RUV_SCHEMA)]
Generation = Annotated[
    Csn | None,
    PlainValidator(lambda value: None if value is None else _csn(value)),
    WithJsonSchema({"anyOf": [_CSN_SCHEMA, {"type": "null"}]}),
]
_HISTORY_SCHEMA: Final = {
    "type": "object",
    "description": "The public key of the replica; by RID its heads (CSN, value of the chain, signature) and "
    "the keys that it knows; of a copy also its values at the consumer's heads.",
    "properties": {
        "key": {"type": "string"},
        "heads": {"type": "object"},
        "keys": {"type": "object"},
        "covers": {"type": "object"},
    },
    "required": ["key"],
}
HistoryBody = Annotated[
    History | None,
    PlainValidator(lambda value: None if value is None else History.of(value)),
    WithJsonSchema({"anyOf": [_HISTORY_SCHEMA, {"type": "null"}]}),
]
HistoryShown = Annotated[
    dict[str, Any] | None, WithJsonSchema({"anyOf": [_HISTORY_SCHEMA, {"type": "null"}]})
]
Lease = Annotated[Duration, AfterValidator(_lease)]
SessionIdText = Annotated[str, StringConstraints(pattern=SESSION_ID)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[^\x00-\x1f]*$")]


def _shown(example: dict[str, Any], *, extra: Literal["forbid", "ignore"] = "forbid") -> ConfigDict:
    return ConfigDict(extra=extra, json_schema_extra={"examples": [example]})


class SupplierIntroduction(BaseModel):
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


class AcquireRequest(BaseModel):
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

    @model_validator(mode="before")
    @classmethod
    def _known_protocol(cls, value: Any) -> Any:
        """Before all else: of another protocol nobody knows what the fields mean."""
        if isinstance(value, Mapping):
            asked = value.get("protocol")
            if isinstance(asked, int) and asked != PROTOCOL:
                raise ProtocolUnknown(f"this replica speaks protocol {PROTOCOL}, not {asked}")
        return value


class ConsumerState(BaseModel):
    """The consumer as it stands; `ruv` null: it has none, or half a copy."""

    rid: int
    status: str
    generation: str | None
    ruv: RuvRead | None
    purged: RuvRead


class PeerLimits(BaseModel):
    """What the consumer takes at a time; `batch_bytes` as a batch arrives, and when it is decoded."""

    batch_rows: int
    batch_bytes: int
    in_flight: int


class EntryPosition(BaseModel):
    """An entry, by standard base64."""

    database: str
    key: str


class CopyRead(BaseModel):
    """How far a total initialisation has come; `is_copied`: changes follow, no entries."""

    resume_after: EntryPosition | None
    is_copied: bool


class AcquiredRead(BaseModel):
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
        )
        after = found.resume_after
        position = None if after is None else EntryPosition(database=_base64(after[0]), key=_base64(after[1]))
        total = CopyRead(resume_after=position, is_copied=found.is_copied)
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


class RejectedRead(BaseModel):
    """A record that the consumer cannot keep; later ones of its replica are not applied."""

    rid: int
    csn: str
    code: str
    detail: str


class AppliedRead(BaseModel):
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


class RenewLeaseRequest(BaseModel):
    """Asks for more time."""

    model_config = _shown(peer_examples.RENEW)

    epoch: int = Field(ge=1)
    lease: Lease = timedelta(seconds=60)


class LeaseRead(BaseModel):
    """Until when the lease is the supplier's."""

    model_config = _shown({"expires_at": peer_examples.EXPIRES_AT})

    expires_at: AwareDatetime


class CompleteTotalRequest(BaseModel):
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


class ReplicaRuvRead(BaseModel):
    """A RUV."""

    model_config = _shown({"ruv": peer_examples.RELEASED["ruv"]})

    ruv: RuvRead


class ReleasedRead(BaseModel):
    """The replica as a session has left it."""

    model_config = _shown(peer_examples.RELEASED)

    ruv: RuvRead
    status: str


class PointRead(BaseModel):
    """A CSN in the history of a replica."""

    csn: str
    place: Literal["HERE", "TRIMMED", "FOREIGN", "AHEAD"]
    chain: str | None = Field(description="null: it is from before there was a chain, or not here.")


class PeerReplicaRead(BaseModel):
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


def shown_vector(vector: Mapping[int, str]) -> dict[str, str]:
    """A vector as JSON has it, by ascending RID."""
    return {str(rid): str(vector[rid]) for rid in sorted(vector)}


def _base64(value: bytes) -> str:
    return b64encode(value).decode()
