"""Strong ETags from row versions, and the conditional headers (RFC 9110, 13.1)."""

import re
from collections.abc import Mapping
from typing import Annotated

from fastapi import Header
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from app.errors import EtagMismatch, InvalidHeader, PreconditionMissing

IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="The ETag that was read. Missing: 428. Stale: 412.")
]
IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description="Answer 304 if still current.")]

_TAG = re.compile(r'\s*(W/)?"([^"]*)"\s*')


def etag(version: int) -> str:
    """The strong ETag of a row version."""
    return f'"{version}"'


def _parse(header: str) -> list[tuple[bool, str]]:
    """Split a list of entity tags into (weak, tag)."""
    if header.strip() == "*":
        return [(False, "*")]
    tags = []
    for part in header.split(","):
        match = _TAG.fullmatch(part)
        if match is None:
            raise InvalidHeader(f"not an entity tag: {part.strip()[:100]}")
        tags.append((match.group(1) is not None, match.group(2)))
    return tags


def require_match(header: str | None, version: int) -> None:
    """Demand that the client changes what it has read.

    Raises:
        PreconditionMissing: no If-Match.
        EtagMismatch: another version.
    """
    if header is None:
        raise PreconditionMissing("this change needs If-Match with the ETag that you read")
    tags = _parse(header)
    if not any(not weak and tag in ("*", str(version)) for weak, tag in tags):
        raise EtagMismatch("it has changed since you read it", headers={"ETag": etag(version)})


def is_current(header: str | None, version: int | str) -> bool:
    """Tell whether If-None-Match names this version, so that 304 is the answer."""
    return header is not None and any(tag in ("*", str(version)) for _, tag in _parse(header))


def conditional_answer(
    shown: BaseModel, version: int, if_none_match: str | None, *, headers: Mapping[str, str] | None = None
) -> Response:
    """200 with a resource and the ETag of its version, or 304 where If-None-Match names that version.

    Args:
        headers: further ones, of both answers.
    Raises: InvalidHeader: no entity tags.
    """
    found = {"ETag": etag(version), **(headers or {})}
    if is_current(if_none_match, version):
        return Response(status_code=304, headers=found)
    return JSONResponse(shown.model_dump(mode="json", by_alias=True), headers=found)
