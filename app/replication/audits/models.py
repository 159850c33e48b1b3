"""Audits over HTTP: the request, the snapshot that a job keeps, and what its result says."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema

from app.kit.model import Model
from app.kit.values import Text
from app.replication.agreements.sessions.models import AGREEMENT_PATTERN
from app.replication.consumer.fields import CsnText, RuvRead
from app.replication.replica.models import Base64Bytes
from app.settings import EngineChoice
from spark.formats.csn import CSN_CHARS, Csn
from spark.formats.ruv import parse_rid
from spark.replication.replica.digest import EntryKey

RANGES_MAX: Final = 1_000


_CSN_SCHEMA: Final = {"type": "string", "pattern": f"^[0-9a-f]{{{CSN_CHARS}}}$"}


_RANGES_SCHEMA: Final = {
    "type": "object",
    "maxProperties": RANGES_MAX,
    "additionalProperties": {
        "type": "array",
        "prefixItems": [{"anyOf": [_CSN_SCHEMA, {"type": "null"}]}, _CSN_SCHEMA],
        "minItems": 2,
        "maxItems": 2,
    },
}


CsnRange = tuple[Csn | None, Csn]


def _range(rid: int, value: Any) -> CsnRange:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], str):
        raise ValueError(f"{rid}: a range is [after or null, upto]")
    after = None if value[0] is None else Csn(str(value[0]))
    upto = Csn(value[1])
    for csn in (after, upto):
        if csn is not None and csn.rid != rid:
            raise ValueError(f"{csn} is a change of replica {csn.rid}, not of {rid}")
    if after is not None and after > upto:
        raise ValueError(f"{rid}: the range ends before it begins")
    return after, upto


def read_ranges(value: Any) -> dict[int, CsnRange]:
    """Ranges of CSNs by replica id from JSON.

    Raises: ValueError: they are none.
    """
    if not isinstance(value, Mapping):
        raise ValueError("an object of ranges by RID")
    if len(value) > RANGES_MAX:
        raise ValueError(f"more than {RANGES_MAX} ranges")
    rids = [parse_rid(str(key)) for key in value]
    return {rid: _range(rid, found) for rid, found in zip(rids, value.values(), strict=True)}


RangesMap = Annotated[dict[int, CsnRange], PlainValidator(read_ranges), WithJsonSchema(_RANGES_SCHEMA)]


class EntryPoint(Model):
    """A place among the entries, by standard base64."""

    model_config = ConfigDict(extra="forbid")

    database: Base64Bytes
    key: Base64Bytes

    @property
    def place(self) -> EntryKey:
        """As the lower floor compares it."""
        return self.database, self.key


class EntriesRange(Model):
    """A stretch of the entries, behind `after`, up to and with `upto`; null: from the first, to the last."""

    model_config = ConfigDict(extra="forbid")

    after: EntryPoint | None = None
    upto: EntryPoint | None = None


class DigestRequest(Model):
    """What to count and hash. Members that a later version adds are passed over."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={"examples": [{"ranges": {"1": [None, "6aff000a000000010000"]}, "entries": False}]},
    )

    ranges: RangesMap = Field(
        default_factory=dict, description="RID to [after, upto]; `after` null: the first."
    )
    entries: bool = False
    entries_range: EntriesRange | None = Field(default=None, description="Only these entries; null: all.")
    buried: CsnText | None = Field(
        default=None, description="Entries: without tombstones up to this CSN; the other side purged them."
    )


class RangeDigestRead(Model):
    """The changes of one range."""

    count: int
    checksum: str
    whole: bool = Field(description="The changelog had all of the range while it was read.")


class EntriesDigestRead(Model):
    """The entries, tombstones among them."""

    count: int
    checksum: str
    quiet: bool = Field(description="No change came, and no tombstone was purged, while they were read.")


_DIGESTS_EXAMPLE: Final[dict[str, Any]] = {
    "rids": {
        "1": {
            "count": 1204,
            "checksum": "65e39e598fd3640d5acd1b35f689fcbbeff253062b0d08dbcb118a4f1b179aa9",
            "whole": True,
        }
    },
    "entries": None,
    "ruv": {"1": "6aff000a000000010000"},
    "purged": {},
    "buried": None,
}


class DigestsRead(Model):
    """What a replica holds; the vectors are those after the reading."""

    model_config = ConfigDict(json_schema_extra={"examples": [_DIGESTS_EXAMPLE]})

    rids: dict[str, RangeDigestRead]
    entries: EntriesDigestRead | None
    ruv: RuvRead
    purged: RuvRead
    buried: str | None = Field(
        default=None, description="The greatest CSN of the tombstones that were purged; null: none."
    )


JOB_AUDIT: Final = "AUDIT"


class AuditRequest(Model):
    """Compare what a replica and a consumer hold; nothing is written on either side."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"agreement_id": "agr_01k9x2m4c6d8e0f2g4h6j8k0mn", "entries": True}]},
    )

    agreement_id: str = Field(pattern=AGREEMENT_PATTERN)
    range: RangesMap | None = Field(
        default=None,
        description="RID to [after, upto] (`after` null: from the first); null: all that both sides hold.",
    )
    entries: bool = Field(default=True, description="The entries too, where both RUVs are equal.")
    engine: EngineChoice | None = Field(
        default=None, description="What reads this replica; null: the service's default."
    )
    reason: Text | None = Field(default=None, max_length=500)


class AuditParams(Model):
    """The snapshot of an audit at its submission."""

    agreement_id: str
    range: RangesMap | None
    entries: bool
    engine: EngineChoice | None = None
    consumer: dict[str, str]
    target: dict[str, Any]


class NotCompared(StrEnum):
    """Why something was not compared."""

    ONLY_SUPPLIER = "ONLY_SUPPLIER"
    ONLY_CONSUMER = "ONLY_CONSUMER"
    NOTHING_IN_COMMON = "NOTHING_IN_COMMON"
    TRIMMED_MEANWHILE = "TRIMMED_MEANWHILE"
    NOT_ASKED_FOR = "NOT_ASKED_FOR"
    RUVS_DIFFER = "RUVS_DIFFER"
    CHANGED_MEANWHILE = "CHANGED_MEANWHILE"
    TOMBSTONES_PURGED = "TOMBSTONES_PURGED"


class DifferenceKind(StrEnum):
    """What differs."""

    MISSING_AT_CONSUMER = "MISSING_AT_CONSUMER"
    MISSING_AT_SUPPLIER = "MISSING_AT_SUPPLIER"
    DIFFERENT = "DIFFERENT"


class SideRead(Model):
    """What one side holds; a range that was read in pieces has the checksum of their checksums."""

    count: int
    checksum: str


class RidAuditRead(Model):
    """The changes of one replica id over the range that both sides hold."""

    rid: int
    after: str | None = None
    upto: str | None = None
    supplier: SideRead | None = None
    consumer: SideRead | None = None
    agrees: bool | None = Field(default=None, description="Null: not compared.")
    not_compared: NotCompared | None = None


class ChangeDifferenceRead(Model):
    """A change, or a narrow range of changes, of which the sides hold different things."""

    rid: int
    kind: DifferenceKind
    csn: str | None = Field(description="Null: the supplier has none in the range, and cannot name them.")
    after: str | None
    upto: str
    supplier: int
    consumer: int


class EntryPlace(Model):
    """A key, in base64."""

    database: str
    key: str


class EntryDifferenceRead(Model):
    """Entries behind `after` (null: from the first), up to and with `upto` (null: to the last)."""

    kind: DifferenceKind
    after: EntryPlace | None
    upto: EntryPlace | None
    supplier: int
    consumer: int


class EntriesAuditRead(Model):
    """The entries, tombstones among them."""

    supplier: SideRead | None = None
    consumer: SideRead | None = None
    agrees: bool | None = Field(default=None, description="Null: not compared.")
    not_compared: NotCompared | None = None
    differing: list[EntryDifferenceRead] = Field(default=[])


class AuditResult(Model):
    """What an audit found.

    `agrees`: nothing that was compared differs. `complete`: all of both sides was compared, RUVs are equal.
    """

    agrees: bool
    complete: bool
    reason: str | None = Field(
        description="Why nothing could be compared: GENERATION_MISMATCH, NO_RUV, PART_DIFFERS."
    )
    supplier_ruv: dict[str, str]
    consumer_ruv: dict[str, str] | None
    rids: list[RidAuditRead]
    entries: EntriesAuditRead
    differing: list[ChangeDifferenceRead]
    truncated: bool = Field(description="There are more differences than are listed.")
