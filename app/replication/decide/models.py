"""What `/v1/replication:decide` takes and gives."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, WithJsonSchema

from app.kit.model import Model
from spark.formats.ruv import ELEMENTS_MAX, LINES_MAX

GENERATION_MAX_CHARS = 64
_CSN: dict[str, Any] = {"type": "string", "pattern": "^[0-9a-f]{20}$"}
_MAP: dict[str, Any] = {
    "type": "object",
    "description": "CSN by RID.",
    "propertyNames": {"pattern": "^[1-9][0-9]{0,4}$"},
    "additionalProperties": _CSN,
    "maxProperties": ELEMENTS_MAX,
}
_LINES: dict[str, Any] = {
    "type": "array",
    "description": "Lines in 389's text form.",
    "items": {"type": "string"},
    "maxItems": LINES_MAX,
}

# Read by question.py and not by pydantic: of a union it would name each arm's faults, at places nobody wrote.
VectorBody = Annotated[Any, WithJsonSchema({"anyOf": [_MAP, _LINES]})]
OptionalVectorBody = Annotated[Any, WithJsonSchema({"anyOf": [_MAP, _LINES, {"type": "null"}]})]
# Literals, not the core's enumerations: other domains have a Strategy too, and the document one name for it.
StrategyName = Literal["WINDOW", "CLASSIC"]
OutcomeName = Literal["UP_TO_DATE", "SEND", "NEEDS_TOTAL"]
ReasonName = Literal["GENERATION_MISMATCH", "NO_RUV", "PURGED"]
Generation = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=GENERATION_MAX_CHARS,
        description="Where `ruv` is given in lines, taken from replicageneration.",
    ),
]
CsnBody = Annotated[Any, WithJsonSchema(_CSN)]

_STRICT = ConfigDict(extra="forbid")


class SupplierBody(Model):
    """The supplier's vectors, all of one snapshot."""

    model_config = _STRICT

    ruv: VectorBody = Field(description="The greatest CSN of each replica.")
    min: OptionalVectorBody = Field(
        default=None, description="The first CSN of each; absent: that of the lines of `ruv`, else unknown."
    )
    purged: OptionalVectorBody = Field(
        default=None, description="The greatest CSN of each that ever left; absent: nothing was purged."
    )
    generation: Generation = None


class ConsumerBody(Model):
    """What the consumer presents."""

    model_config = _STRICT

    ruv: OptionalVectorBody = Field(description="null: it has no RUV, which is not an empty one.")
    generation: Generation = None


class PreviousBody(Model):
    """The load before, for CLASSIC; WINDOW looks at none."""

    model_config = _STRICT

    ruv: VectorBody = Field(description="The supplier's RUV at that load.")
    csn_buffer: CsnBody = Field(description="The last CSN that its buffer held.")


class DecideRequest(Model):
    """Two sides to compare."""

    model_config = _STRICT

    strategy: StrategyName = "WINDOW"
    supplier: SupplierBody
    consumer: ConsumerBody
    previous: PreviousBody | None = None


class AnchorRead(Model):
    """Where CLASSIC begins to read the changelog."""

    csn: str | None = Field(description="null: at the beginning, where the first CSN is not known.")
    inclusive: bool


class DecisionRead(Model):
    """The outcome with its grounds."""

    outcome: OutcomeName
    need: list[int] = Field(description="Replicas of which the consumer lacks changes.")
    blocked_rids: list[int] = Field(description="Those whose missing changes were purged.")
    reason: ReasonName | None
    anchor: AnchorRead | None = Field(
        description="CLASSIC's, null under WINDOW; with PURGED, from where 389 would have sent."
    )
    windows: dict[str, tuple[str | None, str]] = Field(
        description="What is sent, by replica: above the first CSN (null: from the first), up to the second."
    )


_SUPPLIER = {
    "ruv": {"1": "65000032000000010000", "2": "6500003c000000020000", "3": "6500001e000000030000"},
    "min": {"3": "6500000a000000030000"},
    "purged": {"1": "65000014000000010000"},
    "generation": "64ffffff000000010000",
}
_CONSUMER = {
    "ruv": {"1": "65000032000000010000", "2": "65000014000000020000", "4": "65000063000000040000"},
    "generation": "64ffffff000000010000",
}
REQUEST_EXAMPLES: dict[str, Any] = {
    "window": {
        "summary": "One replica behind, one unknown to the consumer, one unknown to the supplier",
        "value": {"strategy": "WINDOW", "supplier": _SUPPLIER, "consumer": _CONSUMER},
    },
    "later-load": {
        "summary": "The way of 389, after a first buffer",
        "value": {
            "strategy": "CLASSIC",
            "supplier": _SUPPLIER,
            "consumer": _CONSUMER,
            "previous": {"ruv": {"2": "6500003c000000020000"}, "csn_buffer": "65000028000000020000"},
        },
    },
    "lines": {
        "summary": "389's own lines, with the generation in them",
        "value": {
            "supplier": {
                "ruv": [
                    "{replicageneration} 64ffffff000000010000",
                    "{replica 1 ldap://s1.example:389} 65000001000000010000 65000032000000010000",
                    "{replica 2 ldap://s2.example:389}",
                ]
            },
            "consumer": {"ruv": ["{replicageneration} 6affff57000000030000"]},
        },
    },
}
