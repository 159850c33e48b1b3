"""SYNCs of nodes that make none by themselves: as clients ask for them, and what a job keeps and tells."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from app.events.cleanup.models import written
from app.kit.durations import Duration
from app.kit.model import Model
from app.kit.values import Text

JOB_SYNC: Final = "EVENT_SYNC"
INTERVAL_DEFAULT: Final = timedelta(minutes=10)
"""Of generate_syncs."""
INTERVAL_LEAST: Final = timedelta(seconds=1)
INTERVAL_MAX: Final = timedelta(days=1)


def _bounded(value: timedelta) -> timedelta:
    if not INTERVAL_LEAST <= value <= INTERVAL_MAX:
        raise ValueError("from PT1S to P1D")
    return value


SyncInterval = Annotated[Duration, BeforeValidator(written), AfterValidator(_bounded)]


class SyncRequest(Model):
    """Make a SYNC of a node that has made none for a while."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"interval": "PT10M", "reason": "its slon is down"}]},
    )

    interval: SyncInterval = Field(
        default=INTERVAL_DEFAULT,
        description="Only where the node's own newest SYNC is so old, or it has none; PT1S to P1D.",
    )
    reason: Text | None = Field(default=None, max_length=500)


class SyncParams(Model):
    """The snapshot of a request for a SYNC at its submission; every attempt uses it."""

    interval: Duration
    target: dict[str, Any] = Field(description="The store's target as it was.")

    @property
    def overlap(self) -> Literal["QUEUE"]:
        """Of two jobs the second waits, and finds the SYNC of the first."""
        return "QUEUE"


class SyncMaking(StrEnum):
    """Whether a SYNC was made."""

    MADE = "MADE"
    NOT_DUE = "NOT_DUE"


class SyncResult(Model):
    """What became of a request for a SYNC."""

    outcome: SyncMaking
    origin: int = Field(description="The node.")
    seqno: int | None = Field(description="Of the SYNC that was made; null: none was due.")
    last_seqno: int | None = Field(description="The node's newest SYNC before; null: it had none.")
    last_age: Duration | None = Field(
        description="How old that one was, by the node's clock; PT0S also where it is dated in the future."
    )
    interval: Duration
    has_own_slon: bool | None = Field(
        description="false: the node's own slon is not connected, and replication to this node stands"
        " still; null: the role may not see it."
    )
