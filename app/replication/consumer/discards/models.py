"""Grants to discard over HTTP."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from app.kit.durations import Duration, between, read_duration
from app.kit.model import Model
from app.kit.values import Text
from spark.formats.csn import RID_MAX, RID_MIN

GRANT_PATTERN = r"^dgr_[0-9a-z]{26}$"
EXPIRES_MIN: Final = timedelta(seconds=1)
EXPIRES_MAX: Final = timedelta(days=7)
EXPIRES_DEFAULT: Final = timedelta(hours=1)
_EXAMPLE: Final[dict[str, Any]] = {
    "supplier_rid": 1,
    "expires_in": "PT1H",
    "reason": "east was chosen, the writes of west since Monday are given up",
}


class GrantState(StrEnum):
    """Whether a grant may still be used."""

    OPEN = "OPEN"
    CONSUMED = "CONSUMED"
    REVOKED = "REVOKED"
    EXPIRED = "EXPIRED"


ExpiresIn = Annotated[
    Duration, BeforeValidator(read_duration), AfterValidator(between(EXPIRES_MIN, EXPIRES_MAX))
]


class DiscardGrantCreate(Model):
    """Grants one supplier to discard, once, what only this replica has."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    supplier_rid: int = Field(ge=RID_MIN, le=RID_MAX, description="The replica that is to be copied here.")
    peer_token_id: Text | None = Field(
        default=None,
        min_length=1,
        max_length=40,
        description="Only with this token of `replication:peer`; null: any that says it is that replica.",
    )
    expires_in: ExpiresIn = Field(
        default=EXPIRES_DEFAULT, validate_default=False, description="From PT1S to P7D."
    )
    reason: Text = Field(min_length=1, max_length=500)


class DiscardGrantRead(Model):
    """A grant as clients see it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "dgr_01k9x2m4c6d8e0f2g4h6j8k0mn",
                    "store": "orders",
                    "supplier_rid": 1,
                    "peer_token_id": None,
                    "state": "OPEN",
                    "reason": _EXAMPLE["reason"],
                    "granted_by": "admin",
                    "created_at": "2026-11-20T10:54:39Z",
                    "expires_at": "2026-11-20T11:54:39Z",
                    "consumed_at": None,
                    "consumed_by": None,
                    "revoked_at": None,
                    "revoked_by": None,
                }
            ]
        }
    )

    id: str
    store: str
    supplier_rid: int
    peer_token_id: str | None
    state: GrantState
    reason: str
    granted_by: str
    created_at: datetime
    expires_at: datetime
    consumed_at: datetime | None
    consumed_by: str | None = Field(description="The session for whose acquire it was spent.")
    revoked_at: datetime | None
    revoked_by: str | None
