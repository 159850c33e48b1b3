"""The audit chain as clients see it."""

from typing import Any, Final

from pydantic import ConfigDict, Field

from app.auth.models import AuditEventRead
from app.kit.model import Model

_LINK: Final[dict[str, Any]] = {"seq": 4711, "hash": "9f2c" * 16}
_START: Final[dict[str, Any]] = {"seq": 0, "hash": "0" * 64}
_SIGNED: Final[dict[str, Any]] = {
    "head": {
        "format": "lethe-audit-head/1",
        "seq": 4711,
        "hash": "9f2c" * 16,
        "anchor_seq": 0,
        "anchor_hash": "0" * 64,
        "at": "2026-11-01T10:00:00.000000Z",
        "instance": "ins_01k9zq3v8x7c5b2n4m6p8r0t1w",
    },
    "signature": {
        "algorithm": "Ed25519",
        "key_id": "ed25519:" + "1a" * 32,
        "public_key": "A" * 43 + "=",
        "value": "A" * 86 + "==",
    },
}


class LinkRead(Model):
    """A place in the chain, and the hash of the row there."""

    seq: int
    hash: str


class ChainRead(Model):
    """Where the chain begins and ends."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"anchor": _START, "head": _LINK, "adopted_seq": 0, "signed": _SIGNED}]
        }
    )

    anchor: LinkRead = Field(description="The last row that was forgotten after its retention; seq 0: none.")
    head: LinkRead = Field(description="The last row.")
    adopted_seq: int = Field(
        description="Rows up to here are older than the chain: it shows that they are as it found them."
    )
    signed: dict[str, Any] = Field(description="The head and its signature, as the last line of an export.")


class ChainRows(Model):
    """Rows by their places; the next ones begin after the last of them."""

    items: list[AuditEventRead]


class ChainProblem(Model):
    """What does not hold."""

    code: str
    seq: int | None
    detail: str


class ChainVerification(Model):
    """What a check of some rows has found."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "ok": True,
                    "is_whole": True,
                    "checked": 4711,
                    "anchor": _START,
                    "head": _LINK,
                    "through": _LINK,
                    "problems": [],
                    "more_problems": 0,
                }
            ]
        }
    )

    ok: bool = Field(description="Nothing wrong was found in these rows.")
    is_whole: bool = Field(description="It came to the head; else ask again with `through`.")
    checked: int
    anchor: LinkRead
    head: LinkRead
    through: LinkRead = Field(description="`after_seq` and `after_hash` of the next request.")
    problems: list[ChainProblem]
    more_problems: int = Field(description="Further ones, which are not listed.")
