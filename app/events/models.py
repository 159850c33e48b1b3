"""Events and confirmations as clients see them."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from annotated_types import Ge, Le
from pydantic import ConfigDict, Field, Strict, model_validator

from app.events.cleanup.switch.models import LOG_STATUS, LogStatusRead
from app.kit.durations import Duration
from app.kit.model import Model
from app.kit.values import Text
from spark.formats.slony import NODE_MAX, SEQNO_MAX

PAIRS_MAX: Final = 2_500
"""Of 50 nodes; a cluster of Slony-I has a dozen."""
EVENT_TYPE: Final = r"^[A-Z][A-Z0-9_]{0,63}$"
NodeId = Annotated[int, Strict(), Ge(1), Le(NODE_MAX)]
Seqno = Annotated[int, Strict(), Ge(1), Le(SEQNO_MAX)]

_EVENT: Final[dict[str, Any]] = {
    "origin": 1,
    "seqno": 5_000_000_123,
    "type": "SYNC",
    "created_at": "2026-11-20T10:54:39.613933Z",
    "snapshot": "84213:84219:84215",
    "data": [None, None, None, None, None, None, None, None],
}
_ASKED: Final[dict[str, Any]] = {
    "origin": 1,
    "receiver": 3,
    "seqno": 5_000_000_123,
    "reason": "its slon lost the row",
}
_OUTCOME: Final[dict[str, Any]] = {
    "origin": 1,
    "receiver": 3,
    "seqno": 5_000_000_123,
    "changed": True,
    "confirmed_seqno": 5_000_000_123,
    "confirmed_before": 5_000_000_120,
    "is_forced": False,
}
_PAIR: Final[dict[str, Any]] = {
    "origin": 1,
    "receiver": 3,
    "receiver_is_active": True,
    "state": "BEHIND",
    "confirmed_seqno": 5_000_000_113,
    "confirmed_at": "2026-11-20T10:40:02.113Z",
    "last_seqno": 5_000_000_123,
    "lag_events": 10,
    "lag": "PT14M37.5S",
}


class EventRead(Model):
    """An event, as a node's sl_event holds it."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EVENT]})

    origin: int
    seqno: int
    type: str
    created_at: datetime = Field(description="ev_timestamp: when its origin made it.")
    snapshot: str | None = Field(description="`xmin:xmax:xip,...` of its origin's transactions.")
    data: list[str | None] = Field(description="ev_data1 to ev_data8.")


class ConfirmedBy(Model):
    """A receiver that has confirmed an event, or a later one of its origin."""

    receiver: int
    seqno: int = Field(description="The newest event of the origin that it has confirmed.")
    at: datetime | None = Field(description="con_timestamp of that confirmation.")


class EventDetail(EventRead):
    """An event, and which nodes have confirmed it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                _EVENT
                | {
                    "confirmed_by": [{"receiver": 2, "seqno": 5_000_000_125, "at": "2026-11-20T10:54:41.2Z"}],
                    "outstanding": [3],
                    "is_confirmed_by_all": False,
                }
            ]
        }
    )

    confirmed_by: list[ConfirmedBy]
    outstanding: list[int] = Field(
        description="Active nodes that have not confirmed it, one that never confirmed anything among them."
    )
    is_confirmed_by_all: bool = Field(description="By every active node but its origin.")


class EventCreate(Model):
    """What kind of event to make; the cluster's own function makes it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"type": "SYNC"}]})

    type: Literal["SYNC"]


class ConfirmationState(StrEnum):
    """How far a receiver is with an origin's events."""

    NEVER_CONFIRMED = "NEVER_CONFIRMED"
    BEHIND = "BEHIND"
    CURRENT = "CURRENT"


class ConfirmationRead(Model):
    """How far one receiver has confirmed one origin's events, as the asked node knows it."""

    model_config = ConfigDict(json_schema_extra={"examples": [_PAIR]})

    origin: int
    receiver: int
    receiver_is_active: bool = Field(
        description="Active and not failed: a cleanup and a wait look at its confirmations."
    )
    state: ConfirmationState
    confirmed_seqno: int | None = Field(description="null: it never confirmed anything of this origin.")
    confirmed_at: datetime | None
    last_seqno: int | None = Field(description="The origin's newest event here; null: none is here.")
    lag_events: int = Field(description="Events of the origin here that it has not confirmed.")
    lag: Duration | None = Field(
        description="Age of the newest event that it has confirmed (where that is not here any more: of the"
        " newest before it, else of the oldest that is not confirmed); PT0S when it is CURRENT; null:"
        " infinite, it never confirmed anything."
    )


class MatrixRead(Model):
    """Every pair of origin and receiver of the cluster; none is ever left out."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"local_node": 1, "as_of": "2026-11-20T10:54:39.613933Z", "items": [_PAIR]}]
        }
    )

    local_node: int = Field(description="The node that was asked; others may know more.")
    as_of: datetime = Field(description="By the node's own clock.")
    items: list[ConfirmationRead]


class NodeStateRead(Model):
    """A node as its last check saw it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "store": "lab-1",
                    "checked_at": "2026-11-20T10:54:39.613933Z",
                    "local_node": 1,
                    "confirmations": [_PAIR],
                    "log_status": LOG_STATUS,
                }
            ]
        }
    )

    store: str
    checked_at: datetime | None = Field(
        description="Null: no check has read the node that the store names now."
    )
    local_node: int | None
    confirmations: list[ConfirmationRead] = Field(
        description=f"Every pair of origin and receiver; {PAIRS_MAX} at most."
    )
    log_status: LogStatusRead | None = Field(
        description="Null: Lethe's role may not read the log tables, or no check has."
    )


class ConfirmRequest(Model):
    """Say that a receiver has processed an origin's events up to `seqno`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_ASKED]})

    origin: NodeId
    receiver: NodeId
    seqno: Seqno
    force: bool = Field(
        default=False,
        strict=True,
        description="For admins, with a reason: the receiver is not asked. A false confirmation lets the"
        " cluster truncate rows that were not replicated.",
    )
    reason: Text | None = Field(default=None, min_length=1, max_length=500)

    @model_validator(mode="after")
    def _forced_with_a_reason(self) -> Self:
        if self.force and self.reason is None:
            raise ValueError("`force` needs a `reason`")
        return self


class ConfirmRead(Model):
    """What became of a confirmation."""

    model_config = ConfigDict(json_schema_extra={"examples": [_OUTCOME]})

    origin: int
    receiver: int
    seqno: int
    changed: bool = Field(description="false: it had confirmed as far or further before.")
    confirmed_seqno: int = Field(description="The newest that is confirmed now.")
    confirmed_before: int | None = Field(description="The newest that was confirmed before; null: none.")
    is_forced: bool = Field(description="The receiver was not asked.")
