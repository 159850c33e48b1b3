"""What one parameter is: its type, its range, where it may be set."""

import re
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from app.auth.scopes import Scope
from app.errors import Unprocessable
from app.kit.cron import InvalidCron, parse_cron
from app.kit.durations import format_duration, parse_duration

ParameterValue = bool | int | str
VALUE_MAX_CHARS = 200
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")


class ParameterType(StrEnum):
    """How a value is written."""

    BOOLEAN = "BOOLEAN"
    INTEGER = "INTEGER"
    DURATION = "DURATION"
    CRON = "CRON"


class ParameterScope(StrEnum):
    """Where a parameter may be set."""

    GLOBAL = "GLOBAL"
    STORE = "STORE"


_BOTH = (ParameterScope.GLOBAL, ParameterScope.STORE)


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """One parameter.

    Args:
        minimum, maximum: inclusive; a number for INTEGER, an ISO 8601 duration for DURATION.
        kinds: the kinds of store that it is for; empty: the service itself.
        in_use: whether this version acts on it; the others are accepted and shown, so that a
            configuration can be complete before the verb arrives.
    """

    name: str
    type: ParameterType
    default: ParameterValue
    description: str
    unit: str | None = None
    minimum: int | str | None = None
    maximum: int | str | None = None
    aliases: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    scopes: tuple[ParameterScope, ...] = field(default=_BOTH)
    in_use: bool = True
    needs: Scope | None = None
    """What a token needs besides, because the value makes Lethe act."""

    def parse(self, value: object) -> ParameterValue:
        """Check a value and bring it to its canonical form.

        Raises: Unprocessable: wrong type or out of range.
        """
        if self.type is ParameterType.BOOLEAN:
            return self._parse_boolean(value)
        if self.type is ParameterType.INTEGER:
            return self._parse_integer(value)
        if self.type is ParameterType.CRON:
            return self._parse_cron(value)
        return self._parse_duration(value)

    def _refuse(self, detail: str) -> Unprocessable:
        return Unprocessable(f"{self.name}: {detail}", code="PARAMETER_INVALID")

    def _parse_boolean(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in ("true", "false", "1", "0"):
            return value.strip().lower() in ("true", "1")
        raise self._refuse("true or false")

    def _parse_integer(self, value: object) -> int:
        if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value.strip()):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._refuse("a whole number")
        low, high = self.minimum, self.maximum
        if (isinstance(low, int) and value < low) or (isinstance(high, int) and value > high):
            raise self._refuse(f"from {low} to {high}")
        return value

    def _parse_cron(self, value: object) -> str:
        if not isinstance(value, str) or len(value) > VALUE_MAX_CHARS:
            raise self._refuse("a cron expression such as 0 0 */4 * * *")
        try:
            return parse_cron(value)
        except InvalidCron as error:
            raise self._refuse(str(error)) from None

    def _parse_duration(self, value: object) -> str:
        if not isinstance(value, str) or len(value) > VALUE_MAX_CHARS:
            raise self._refuse("an ISO 8601 duration such as PT10M")
        try:
            span = parse_duration(value)
        except (ValueError, OverflowError):
            raise self._refuse("an ISO 8601 duration such as PT10M") from None
        low, high = self.minimum, self.maximum
        if (low is not None and span < parse_duration(str(low))) or (
            high is not None and span > parse_duration(str(high))
        ):
            raise self._refuse(f"from {low} to {high}")
        return format_duration(span)


def as_timedelta(value: ParameterValue) -> timedelta:
    """The span of a DURATION value."""
    return parse_duration(str(value))
