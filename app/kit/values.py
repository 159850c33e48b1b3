"""Values of requests that every metadata database takes, and that JSON can give back.

PostgreSQL has no NUL in text, and neither database a lone surrogate; an instant whose UTC lies outside of the
years of `datetime` cannot be compared; infinity is no JSON.
A number is no instant: whether it counts seconds or milliseconds would be a guess, and a purge would go by
that.
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, StringConstraints

# Below it no time zone could be applied to an instant any more.
LEAST_YEAR = 2


_DATE_AND_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:")


def _written(value: Any) -> Any:
    if isinstance(value, datetime) or (isinstance(value, str) and _DATE_AND_TIME.match(value)):
        return value
    raise ValueError("a time is written as in RFC 3339, such as 2026-11-01T10:00:00Z")


def _in_utc(value: datetime) -> datetime:
    try:
        moved = value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("outside of the years that UTC has here") from error
    if moved.year < LEAST_YEAR:
        raise ValueError("outside of the years that UTC has here")
    return moved


STORE_ID: Final = r"^[a-z][a-z0-9-]{0,62}$"
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Instant = Annotated[AwareDatetime, BeforeValidator(_written), AfterValidator(_in_utc)]
