"""The Prefer header's `wait` (RFC 7240)."""

import re
from typing import Annotated

from fastapi import Header

from app.errors import InvalidHeader

PreferHeader = Annotated[
    str | None, Header(alias="Prefer", description="`wait=N`: seconds to wait, at most 60.")
]

DIGITS_MAX = 9
_WAIT = re.compile(r"wait\s*=\s*\"?(-?)0*([0-9]+)\"?")


def wait_seconds(header: str | None, *, default_s: int, max_s: int) -> int:
    """Read `wait=N`, cut to the service's maximum; other preferences are ignored, as the RFC says.

    Raises: InvalidHeader: N is negative.
    """
    if header is None:
        return default_s
    for part in re.split(r"[,;]", header):
        match = _WAIT.fullmatch(part.strip())
        if match:
            sign, digits = match.groups()
            if sign:
                raise InvalidHeader("Prefer: wait is a number of seconds, 0 or more")
            return max_s if len(digits) > DIGITS_MAX else min(int(digits), max_s)
    return default_s
