"""Audits over HTTP: the request, the snapshot that a job keeps, and what its result says."""

from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from app.kit.values import Text
from app.replication.agreements.session_models import AGREEMENT_PATTERN
from app.replication.audits.digests import RangesMap

JOB_AUDIT: Final = "AUDIT"


class AuditRequest(BaseModel):
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
    reason: Text | None = Field(default=None, max_length=500)


class AuditParams(BaseModel):
    """The snapshot of an audit at its submission."""

    agreement_id: str
    range: RangesMap | None
    entries: bool
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


class DifferenceKind(StrEnum):
    """What differs."""

    MISSING_AT_CONSUMER = "MISSING_AT_CONSUMER"
    MISSING_AT_SUPPLIER = "MISSING_AT_SUPPLIER"
    DIFFERENT = "DIFFERENT"


class SideRead(BaseModel):
    """What one side holds; a range that was read in pieces has the checksum of their checksums."""

    count: int
    checksum: str


class RidAuditRead(BaseModel):
    """The changes of one replica id over the range that both sides hold."""

    rid: int
    after: str | None = None
    upto: str | None = None
    supplier: SideRead | None = None
    consumer: SideRead | None = None
    agrees: bool | None = Field(default=None, description="Null: not compared.")
    not_compared: NotCompared | None = None


class ChangeDifferenceRead(BaseModel):
    """A change, or a narrow range of changes, of which the sides hold different things."""

    rid: int
    kind: DifferenceKind
    csn: str | None = Field(description="Null: the supplier has none in the range, and cannot name them.")
    after: str | None
    upto: str
    supplier: int
    consumer: int


class EntryPlace(BaseModel):
    """A key, in base64."""

    database: str
    key: str


class EntryDifferenceRead(BaseModel):
    """Entries behind `after` (null: from the first), up to and with `upto` (null: to the last)."""

    kind: DifferenceKind
    after: EntryPlace | None
    upto: EntryPlace | None
    supplier: int
    consumer: int


class EntriesAuditRead(BaseModel):
    """The entries, tombstones among them."""

    supplier: SideRead | None = None
    consumer: SideRead | None = None
    agrees: bool | None = Field(default=None, description="Null: not compared.")
    not_compared: NotCompared | None = None
    differing: list[EntryDifferenceRead] = []


class AuditResult(BaseModel):
    """What an audit found.

    `agrees`: nothing that was compared differs. `complete`: all of both sides was compared, RUVs are equal.
    """

    agrees: bool
    complete: bool
    reason: str | None = Field(description="Why nothing could be compared: GENERATION_MISMATCH, NO_RUV.")
    supplier_ruv: dict[str, str]
    consumer_ruv: dict[str, str] | None
    rids: list[RidAuditRead]
    entries: EntriesAuditRead
    differing: list[ChangeDifferenceRead]
    truncated: bool = Field(description="There are more differences than are listed.")
