"""Fields of what goes over the wire between a supplier and its consumer: CSNs, vectors, histories, leases."""

from datetime import timedelta
from typing import Annotated, Any, Final

from pydantic import AfterValidator, PlainValidator, StringConstraints, WithJsonSchema

from app.kit.durations import Duration, between
from spark.formats.csn import Csn
from spark.formats.ruv import ELEMENTS_MAX, parse_rid
from spark.replication.proofs.values import History

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
Lease = Annotated[Duration, AfterValidator(between(LEASE_MIN, LEASE_MAX))]
SessionIdText = Annotated[str, StringConstraints(pattern=SESSION_ID)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=63, pattern=r"^[^\x00-\x1f]*$")]
