"""Values of requests that every metadata database takes, and that JSON can give back.

PostgreSQL has no NUL in text, and neither database a lone surrogate; an instant whose UTC lies outside of the
years of `datetime` cannot be compared; infinity is no JSON.
"""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, StringConstraints

# Below it no time zone could be applied to an instant any more.
LEAST_YEAR = 2


def _in_utc(value: datetime) -> datetime:
    try:
        moved = value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("outside of the years that UTC has here") from error
    if moved.year < LEAST_YEAR:
        raise ValueError("outside of the years that UTC has here")
    return moved


Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Instant = Annotated[AwareDatetime, AfterValidator(_in_utc)]
