"""The Prefer header's `wait` (RFC 7240)."""

import re
from typing import Annotated

from fastapi import Header

from app.errors import InvalidHeader

PreferHeader = Annotated[
    str | None, Header(alias="Prefer", description="`wait=N`: seconds to wait, at most 60.")
]

_WAIT = re.compile(r"wait\s*=\s*\"?(-?\d+)\"?")


def wait_seconds(header: str | None, *, default_s: int, max_s: int) -> int:
    """Read `wait=N`, cut to the service's maximum; other preferences are ignored, as the RFC says.

    Raises: InvalidHeader: N is negative.
    """
    if header is None:
        return default_s
    for part in re.split(r"[,;]", header):
        match = _WAIT.fullmatch(part.strip())
        if match:
            seconds = int(match.group(1))
            if seconds < 0:
                raise InvalidHeader("Prefer: wait is a number of seconds, 0 or more")
            return min(seconds, max_s)
    return default_s
