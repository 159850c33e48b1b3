"""Changes that were put aside, as clients see them."""

from datetime import datetime
from typing import Any, Final

from pydantic import ConfigDict, Field

from app.kit.model import Model
from app.replication.replica.models import Base64
from spark.replication.dead_letters import Direction

_EXAMPLE: Final[dict[str, Any]] = {
    "direction": "SENT",
    "peer": "agr_01k9x2m4c6d8e0f2g4h6j8k0mn",
    "rid": 1,
    "csn": "6aff000a000000010000",
    "kind": "NOVELTY",
    "database": "b3JkZXJz",
    "key": "MTAwMQ==",
    "payload": "eyJhIjoxfQ==",
    "database_bytes": 6,
    "key_bytes": 4,
    "payload_bytes": 7,
    "code": "KIND_UNKNOWN",
    "detail": "this version knows no records of kind NOVELTY",
    "attempts": 2,
    "first_at": "2026-11-20T20:12:53Z",
    "last_at": "2026-11-20T20:13:53Z",
    "resolved_at": None,
}


class DeadLetterRead(Model):
    """A refused record; its replica id is not sent any further until it is accepted."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    direction: Direction = Field(
        description="SENT: the consumer of `peer` refused it. RECEIVED: this replica."
    )
    peer: str = Field(description="SENT: the agreement. RECEIVED: the supplier.")
    rid: int
    csn: str
    kind: str
    database: Base64 = Field(description="The first 4,096 bytes, in base64.")
    key: Base64 = Field(description="The first 4,096 bytes, in base64.")
    payload: Base64 | None = Field(
        description="In base64; null: there is none, or it has more than 4,096 bytes."
    )
    database_bytes: int
    key_bytes: int
    payload_bytes: int | None = Field(description="Null: there is none, the record deletes.")
    code: str
    detail: str
    attempts: int
    first_at: datetime
    last_at: datetime
    resolved_at: datetime | None = Field(description="When it was accepted, or came by another way.")
