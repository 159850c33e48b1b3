"""Windows as clients see them."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, FiniteFloat, StringConstraints

from app.kit.cron import InvalidCron
from app.kit.durations import Duration
from app.kit.model import Model
from app.kit.values import Text
from app.schedules.crontab import CRON_MAX_CHARS, parse_crontab
from app.schedules.windows.rows import Window
from app.schedules.windows.rules import WindowKind
from app.stores.fields import Label, TimeZone

LEAST: Final = timedelta(minutes=1)
MOST: Final = timedelta(days=31)
LABELS_MAX: Final = 20
CRON_TEXT: Final = (
    "Five fields: minute, hour, day of month, month, day of week. A named time that the clocks leave out"
    " comes right after the gap; one that comes twice counts once."
)


def _cron(text: Any) -> Any:
    if not isinstance(text, str):
        return text  # for the words of the type
    try:
        return parse_crontab(text)
    except InvalidCron as error:
        raise ValueError(str(error)) from error


def _length(value: timedelta) -> timedelta:
    if not LEAST <= value <= MOST:
        raise ValueError("between PT1M and P31D")
    return value


Cron = Annotated[str, StringConstraints(min_length=9, max_length=CRON_MAX_CHARS), BeforeValidator(_cron)]
Length = Annotated[Duration, AfterValidator(_length)]
ShortName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
Labels = dict[Label, Text]
_EXAMPLE: Final[dict[str, Any]] = {
    "name": "office hours",
    "kind": "DENY",
    "cron": "0 8 * * MON-FRI",
    "time_zone": "Europe/Berlin",
    "duration": "PT10H",
    "labels": {"tier": "gold"},
}


class WindowCreate(Model):
    """A new window."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    name: ShortName | None = None
    kind: WindowKind = Field(
        description="DENY: jobs rest inside. ALLOW: jobs rest outside of all ALLOW windows of their store."
    )
    cron: Cron = Field(description=f"When it begins. {CRON_TEXT}")
    time_zone: TimeZone = "UTC"
    duration: Length = Field(description="From its beginning, in real time: PT1M to P31D.")
    intensity: FiniteFloat | None = Field(
        default=None,
        ge=0,
        le=1,
        description="The share of the time that is worked inside: 0 pauses, 1 brakes nothing. Null: 0 of a"
        " DENY, 1 of an ALLOW. Of several windows the smallest holds.",
    )
    labels: Labels = Field(
        default_factory=dict, max_length=LABELS_MAX, description="Stores that have all of these; none: all."
    )


class WindowRead(Model):
    """A window, and whether it is open."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"id": f"win_{'0' * 26}"}
                | _EXAMPLE
                | {
                    "intensity": 0.0,
                    "open_until": None,
                    "next_at": "2026-11-24T07:00:00Z",
                    "created_by": "admin",
                    "created_at": "2026-11-23T10:00:00Z",
                }
            ]
        }
    )

    id: str
    name: str | None
    kind: WindowKind
    cron: str
    time_zone: str
    duration: Duration
    intensity: float
    labels: dict[str, str]
    open_until: datetime | None = Field(description="Null: it is not open now.")
    next_at: datetime | None = Field(description="When it begins next; null: never.")
    created_by: str
    created_at: datetime


def columns_of(request: WindowCreate) -> dict[str, Any]:
    """A request as a row keeps it."""
    by_kind = 0.0 if request.kind is WindowKind.DENY else 1.0
    return {
        "name": request.name,
        "kind": request.kind,
        "cron": request.cron,
        "time_zone": request.time_zone,
        "duration_s": int(request.duration.total_seconds()),
        "intensity": by_kind if request.intensity is None else request.intensity,
        "labels": request.labels,
    }


def read_window(row: Window, *, open_until: datetime | None, next_at: datetime | None) -> WindowRead:
    """Show a row to a client."""
    fields = row.model_dump(exclude={"duration_s"}, warnings=False)
    fields |= {"duration": timedelta(seconds=row.duration_s), "open_until": open_until, "next_at": next_at}
    return WindowRead.model_validate(fields)
