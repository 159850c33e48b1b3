"""A replica's generator of CSNs against the clock, over HTTP."""

from datetime import datetime
from typing import Any, Final

from pydantic import ConfigDict, Field

from app.kit.durations import Duration
from app.kit.model import Model
from app.kit.values import Text

_STANDING: Final[Any] = {"next_at": "2026-11-21T10:54:39Z", "ahead": "P1D", "by_peers": "P1D"}
_LEVEL: Final[Any] = {"next_at": "2026-11-20T10:54:39Z", "ahead": "PT0S", "by_peers": "PT0S"}
_NOW: Final = "2026-11-20T10:54:39Z"


class ClockStandingRead(Model):
    """Where the generator stands."""

    next_at: datetime = Field(description="The second that the next CSN carries.")
    ahead: Duration = Field(description="How far that is ahead of this service's clock.")
    by_peers: Duration = Field(description="What of it peers have left: it ends by a repair alone.")


class ClockRead(Model):
    """The generator of a replica."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"now": _NOW, "status": "ONLINE", "standing": _STANDING, "ahead_max": "PT5M"}]
        }
    )

    now: datetime
    status: str
    standing: ClockStandingRead
    ahead_max: Duration = Field(description="Peers that are further ahead are refused (CLOCK_SKEW).")


class ClockRepairRequest(Model):
    """Asks for a generator's return to the clock."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "west's clock was a day ahead"}]}
    )

    reason: Text = Field(min_length=1, max_length=500)
    without_consumers: bool = Field(
        default=False,
        description="Do not ask consumers what they have of this replica. Safe only where its target was "
        "never restored from a backup since it went ahead.",
    )


class ClockRepairRead(Model):
    """What a repair has done."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "now": _NOW,
                    "before": _STANDING,
                    "after": _LEVEL,
                    "floor": "673d1a2f000000010000",
                    "level_at": _NOW,
                    "consumers_asked": ["agr_01k9x2m4c6d8e0f2g4h6j8k0mn"],
                }
            ]
        }
    )

    now: datetime
    before: ClockStandingRead
    after: ClockStandingRead
    floor: str | None = Field(description="The greatest CSN known: the next one is above it.")
    level_at: datetime = Field(description="When CSNs carry the clock's time again, if few are made until.")
    consumers_asked: list[str] = Field(description="The agreements whose consumers were asked.")
