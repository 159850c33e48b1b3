"""What `/changes` and `/entries` of a REPLICA store take and give; bytes stand in base64."""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

from annotated_types import Len, MaxLen
from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from app.kit.model import Model
from spark.formats.part import PREFIXES_MAX, Part, Prefix
from spark.formats.replica import DATABASE_MAX_BYTES, KEY_MAX_BYTES, VALUE_MAX_BYTES
from spark.replication.replica.conditions import NONE

CHANGES_MAX: Final = 1_000
"""Of one JSON body; NDJSON and Arrow take as many as the body holds."""
ENTRY_BODY_MAX_BYTES: Final = VALUE_MAX_BYTES * 3 // 2
"""Of one entry: its value in base64, and what stands around it."""


def bytes_named(value: Any) -> bytes:
    """Read canonical base64.

    Raises: ValueError.
    """
    if not isinstance(value, str):
        raise ValueError("bytes as a text in base64")
    try:
        found = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("not base64") from error
    if base64.b64encode(found).decode() != value:  # bits behind the last byte: two texts for one value
        raise ValueError("not the canonical base64 of its bytes")
    return found


def base64_text(value: bytes) -> str:
    """Bytes as every JSON of the API shows them."""
    return base64.b64encode(value).decode()


def base64_schema(least: int, most: int) -> WithJsonSchema:
    """JSON Schema of a text in base64 whose bytes have these bounds."""
    return WithJsonSchema(
        {
            "type": "string",
            "contentEncoding": "base64",
            "minLength": -(-least // 3) * 4,
            "maxLength": -(-most // 3) * 4,
            "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$",
        }
    )


Base64Bytes = Annotated[bytes, BeforeValidator(bytes_named)]
Base64 = Annotated[
    bytes,
    PlainSerializer(base64_text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "contentEncoding": "base64"}, mode="serialization"),
]

_CHANGE: Final[dict[str, Any]] = {"database": "b3JkZXJz", "key": "MTAwMQ==", "value": "eyJhIjoxfQ=="}
_CSN: Final = "6aff000a000000010000"


IfCsn = Annotated[
    str | None,
    Field(
        pattern=f"^({NONE}|[0-9a-f]{{20}})$",
        description="Write only where the entry is at this CSN, or `none`: where there is none; else 412.",
    ),
]


class ChangeWrite(Model):
    """One change: `value` is what the key has from now on; null deletes it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_CHANGE]})

    database: Annotated[Base64Bytes, base64_schema(1, DATABASE_MAX_BYTES)] = Field(
        min_length=1,
        max_length=DATABASE_MAX_BYTES,
        description=f"1 to {DATABASE_MAX_BYTES} bytes, in base64.",
    )
    key: Annotated[Base64Bytes, base64_schema(1, KEY_MAX_BYTES)] = Field(
        min_length=1, max_length=KEY_MAX_BYTES, description=f"1 to {KEY_MAX_BYTES} bytes, in base64."
    )
    value: Annotated[Base64Bytes, MaxLen(VALUE_MAX_BYTES), base64_schema(0, VALUE_MAX_BYTES)] | None = Field(
        description=f"At most {VALUE_MAX_BYTES} bytes, in base64; null deletes. It cannot be left out.",
    )

    if_csn: IfCsn = None


class EntryWrite(Model):
    """What an entry has from now on."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"value": _CHANGE["value"], "if_csn": _CSN}]}
    )

    value: Annotated[Base64Bytes, MaxLen(VALUE_MAX_BYTES), base64_schema(0, VALUE_MAX_BYTES)] = Field(
        description=f"At most {VALUE_MAX_BYTES} bytes, in base64."
    )
    if_csn: IfCsn = None


class ChangesWrite(Model):
    """Several changes, written together or not at all, in this order."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"changes": [_CHANGE]}]})

    changes: list[ChangeWrite] = Field(max_length=CHANGES_MAX)


class ChangesWritten(Model):
    """What was written: every change has a CSN of its own, and they follow one another."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"rid": 1, "changes": 1, "first_csn": _CSN, "last_csn": _CSN}],
        }
    )

    rid: int = Field(description="The replica that made the changes.")
    changes: int
    first_csn: str | None = Field(description="null where there was no change.")
    last_csn: str | None


class EntryRead(Model):
    """The newest state of a key: that of its greatest CSN, whatever arrived when."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{**_CHANGE, "csn": _CSN, "rid": 1, "is_tombstone": False}]}
    )

    database: Base64
    key: Base64
    value: Base64 | None = Field(description="null of a tombstone.")
    csn: str
    rid: int = Field(description="The replica that made the change.")
    is_tombstone: bool = Field(description="The key is deleted; shown only where it was asked for.")


class ChangeRead(Model):
    """A record of the changelog."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "rid": 1,
                    "csn": _CSN,
                    "prev": "6aff0009000000010000",
                    "kind": "CHANGE",
                    "database": _CHANGE["database"],
                    "key": _CHANGE["key"],
                    "payload": _CHANGE["value"],
                    "logged_at": "2026-11-20T10:54:39Z",
                }
            ]
        }
    )

    rid: int
    csn: str
    prev: str | None = Field(description="The record before it of the same replica; null: it is the first.")
    kind: str = Field(description="CHANGE, KEEPALIVE, or what a later version knows.")
    database: Base64
    key: Base64
    payload: Base64 | None = Field(description="Of a CHANGE the value; null: it deletes.")
    logged_at: datetime = Field(description="When it came here, by the target's clock.")


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else bytes_named(value)


_Bytes = Annotated[
    bytes, BeforeValidator(_bytes), PlainSerializer(base64_text, return_type=str, when_used="json")
]


class KeyPrefix(Model):
    """All keys of a database that begin so."""

    model_config = ConfigDict(extra="forbid")

    database: Annotated[_Bytes, Len(1, DATABASE_MAX_BYTES), base64_schema(1, DATABASE_MAX_BYTES)]
    prefix: Annotated[_Bytes, Len(0, KEY_MAX_BYTES), base64_schema(0, KEY_MAX_BYTES)] = Field(
        default=b"", description="Empty: every key of the database."
    )


KeyPrefixes = Annotated[list[KeyPrefix], Len(1, PREFIXES_MAX)]


def part_named(keys: Sequence[KeyPrefix] | None) -> Part | None:
    """The part that a body names; None: all keys."""
    return None if keys is None else Part.of(Prefix(each.database, each.prefix) for each in keys)


def shown_keys(part: Part | None) -> list[KeyPrefix] | None:
    """A part for a body; None: all keys."""
    if part is None:
        return None
    return [KeyPrefix(database=each.database, prefix=each.prefix) for each in part.prefixes]
