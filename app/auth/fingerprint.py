"""What tells two requests with one Idempotency-Key apart."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from fastapi import Request
from fastapi.encoders import jsonable_encoder

from app.auth.rows import IdempotencyKey


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """SHA-256 of a request's query and body.

    Args:
        whole: of all fields with their defaults; what versions before 0031 compare, which may work beside us.
        sent: of the fields that differ from their defaults, so one that a later version adds changes nothing;
            of a PATCH also which are null, as that takes away what a field without a value leaves.
    """

    whole: str
    sent: str

    @classmethod
    def of(cls, request: Request, body: Any) -> Self:
        """Of a request and its validated body."""
        query = sorted(request.query_params.multi_items())
        nulls = _nulls(jsonable_encoder(body, exclude_unset=True)) if request.method == "PATCH" else ()
        sent = {"query": query, "sent": jsonable_encoder(body, exclude_defaults=True), "nulls": list(nulls)}
        return cls(_digest({"query": query, "body": jsonable_encoder(body)}), _digest(sent))

    def is_that_of(self, row: IdempotencyKey) -> bool:
        """Whether a key was used with this request."""
        return self.whole == row.request_sha256 if row.sent_sha256 is None else self.sent == row.sent_sha256


def _nulls(value: Any, path: str = "") -> Iterator[str]:
    """Where a value is null, as paths of JSON Pointer."""
    if value is None:
        yield path
    elif isinstance(value, dict):
        for name in sorted(value):
            yield from _nulls(value[name], f"{path}/{name}")


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
