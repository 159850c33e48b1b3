"""What the changelog and the change feed of a replica tell."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lethe_client.decoding import decode
from lethe_client.errors import UnexpectedAnswer
from lethe_client.results import Result


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record of the changelog; of a CHANGE `payload` is the value, None where it deletes."""

    rid: int
    csn: str
    prev: str | None
    kind: str
    database: bytes
    key: bytes
    payload: bytes | None
    logged_at: datetime
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class FeedChange(Record):
    """A record out of the change feed; `cursor` goes on behind it."""

    cursor: str


@dataclass(frozen=True, kw_only=True)
class FeedPage:
    """What follows a cursor: `cursor` is the next one, `more` says that more was there already."""

    items: tuple[Record, ...]
    cursor: str
    more: bool


@dataclass(frozen=True, kw_only=True)
class RecordText(Result):
    """A record as JSON has it."""

    rid: int
    csn: str
    kind: str
    database: str
    key: str
    logged_at: datetime
    prev: str | None = None
    payload: str | None = None


@dataclass(frozen=True, kw_only=True)
class FeedPageText(Result):
    """A page of the feed as JSON has it."""

    items: tuple[RecordText, ...]
    cursor: str
    more: bool


def text64(value: bytes) -> str:
    """Bytes as bodies have them."""
    return base64.b64encode(value).decode()


def url64(value: bytes) -> str:
    """Bytes as paths and queries have them."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def bytes_of(text: str) -> bytes:
    """Bytes that an answer has in base64.

    Raises: UnexpectedAnswer.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UnexpectedAnswer(f"no base64: {text[:80]!r}") from None


def record_of(item: RecordText) -> Record:
    """A record with its bytes."""
    return Record(**_fields(item))


def change_of(document: Mapping[str, Any], *, cursor: str) -> FeedChange:
    """A change of the feed.

    Raises: UnexpectedAnswer.
    """
    return FeedChange(**_fields(decode(RecordText, document)), cursor=cursor)


def _fields(item: RecordText) -> dict[str, Any]:
    return {
        "rid": item.rid,
        "csn": item.csn,
        "prev": item.prev,
        "kind": item.kind,
        "database": bytes_of(item.database),
        "key": bytes_of(item.key),
        "payload": None if item.payload is None else bytes_of(item.payload),
        "logged_at": item.logged_at,
        "raw": item.raw,
    }


@dataclass(frozen=True, kw_only=True)
class KeyChange:
    """A change of a key, and what it is now; `payload` None deletes.

    `outcome` is WON, OVERWRITTEN or EXTINCT; `overwritten_by` is the next greater CSN of the key.
    """

    rid: int
    csn: str
    payload: bytes | None
    logged_at: datetime
    outcome: str
    overwritten_by: str | None
    overwritten_by_rid: int | None
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class KeyChangeText(Result):
    """The same as JSON has it."""

    rid: int
    csn: str
    logged_at: datetime
    outcome: str
    payload: str | None = None
    overwritten_by: str | None = None
    overwritten_by_rid: int | None = None


@dataclass(frozen=True, kw_only=True)
class Overwritten:
    """A change that lost against one of another replica id; `verdict` is CONCURRENT, UNCERTAIN or SEEN."""

    database: bytes
    key: bytes
    verdict: str
    csn: str
    rid: int
    logged_at: datetime
    overwritten_by: str
    overwritten_by_rid: int
    overwritten_by_logged_at: datetime | None
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class OverwrittenText(Result):
    """The same as JSON has it."""

    database: str
    key: str
    verdict: str
    csn: str
    rid: int
    logged_at: datetime
    overwritten_by: str
    overwritten_by_rid: int
    overwritten_by_logged_at: datetime | None = None


def key_change_of(item: KeyChangeText) -> KeyChange:
    """A change of a key with its bytes."""
    return KeyChange(
        rid=item.rid,
        csn=item.csn,
        payload=None if item.payload is None else bytes_of(item.payload),
        logged_at=item.logged_at,
        outcome=item.outcome,
        overwritten_by=item.overwritten_by,
        overwritten_by_rid=item.overwritten_by_rid,
        raw=item.raw,
    )


def overwritten_of(item: OverwrittenText) -> Overwritten:
    """A change that lost, with its bytes."""
    return Overwritten(
        database=bytes_of(item.database),
        key=bytes_of(item.key),
        verdict=item.verdict,
        csn=item.csn,
        rid=item.rid,
        logged_at=item.logged_at,
        overwritten_by=item.overwritten_by,
        overwritten_by_rid=item.overwritten_by_rid,
        overwritten_by_logged_at=item.overwritten_by_logged_at,
        raw=item.raw,
    )
