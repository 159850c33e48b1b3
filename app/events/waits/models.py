"""Waits for confirmations as clients ask for them, the snapshot that a job keeps, and what it tells."""

import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from app.events.cleanup.models import written
from app.events.models import NodeId, Seqno
from app.kit.durations import Duration
from app.kit.model import Model
from app.kit.values import Text
from spark.events.waiting import Outstanding, Why
from spark.formats.slony import NODE_MAX, WAIT_TIMEOUT_DEFAULT_S

JOB_WAIT: Final = "EVENT_WAIT"
TIMEOUT_MAX: Final = timedelta(days=365)
FOR_EVER: Final = timedelta(0)
EVENT_OUTSTANDING: Final = "outstanding"
OUTSTANDING_SHOWN_MAX: Final = 200
_OUTSTANDING: Final[dict[str, Any]] = {
    "origin": 1,
    "seqno": 5_000_000_140,
    "receiver": 3,
    "confirmed_seqno": 5_000_000_113,
    "behind": 27,
    "why": "BEHIND",
}


def _bounded(value: timedelta) -> timedelta:
    if not timedelta(0) <= value <= TIMEOUT_MAX:
        raise ValueError("from PT0S to P365D")
    return value


def _meant(value: object, read: ValidatorFunctionWrapHandler) -> timedelta:
    """Refuse what only rounding makes PT0S: nobody who asks for an instant means for ever."""
    found: timedelta = read(written(value))
    if found == FOR_EVER and re.search("[1-9]", str(value)):
        raise ValueError("less than a microsecond; PT0S is for ever")
    return found


def _node_or_all(value: object) -> object:
    """One fault with the field's own pointer, not one for each form that it may have."""
    is_node = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= NODE_MAX
    if not is_node and value != "ALL":
        raise ValueError(f"a node's id, 1 to {NODE_MAX}, or ALL")
    return value


WaitTimeout = Annotated[Duration, AfterValidator(_bounded), WrapValidator(_meant)]
NodeOrAll = Annotated[NodeId | Literal["ALL"], BeforeValidator(_node_or_all)]


class WaitRequest(Model):
    """What is to be confirmed, by whom, and where that is looked at: slonik's WAIT FOR EVENT."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"origin": 1, "confirmed": "ALL", "wait_on": 1, "timeout": "PT10M"}]},
    )

    origin: NodeOrAll = Field(
        description="The node whose events are to be confirmed; ALL: each active node's."
    )
    confirmed: NodeOrAll = Field(
        description="The node that is to confirm; ALL: every active node but the origin. A node that never"
        " confirmed anything is outstanding."
    )
    wait_on: NodeId | None = Field(
        default=None,
        description="The node whose sl_confirm is looked at; null: the store's own. Another one must be"
        " registered as a store.",
    )
    timeout: WaitTimeout = Field(
        default=timedelta(seconds=WAIT_TIMEOUT_DEFAULT_S),
        description="From the submission on; PT0S: for ever, and not with `Prefer: wait`.",
    )
    seqno: Seqno | None = Field(
        default=None,
        description="The event of one origin; null: its newest, as `wait_on` knows it, and its own node if"
        " that is registered and answers.",
    )
    reason: Text | None = Field(default=None, max_length=500)


class AwaitedRead(Model):
    """An event that is waited for; every older one of its origin is confirmed with it."""

    origin: int
    seqno: int
    known_by: int = Field(description="The node that knows of it, or of a newer one.")


class WaitParams(Model):
    """The snapshot of a wait at its submission; every attempt uses it."""

    origin: NodeOrAll
    confirmed: NodeOrAll
    wait_on: int
    wait_on_store: str = Field(description="The store of that node.")
    timeout: Duration
    awaited: list[AwaitedRead]


class OutstandingRead(Model):
    """A receiver that has not confirmed an event."""

    model_config = ConfigDict(json_schema_extra={"examples": [_OUTSTANDING]})

    origin: int
    seqno: int
    receiver: int
    confirmed_seqno: int | None = Field(description="null: it never confirmed anything of this origin.")
    behind: int | None = Field(
        description="How far, in sequence numbers: at most so many events. null: it never confirmed anything."
    )
    why: Why


class WaitTold(Model):
    """What a wait tells every ten seconds, as the event `outstanding` of its job."""

    outstanding: list[OutstandingRead] = Field(description=f"The first {OUTSTANDING_SHOWN_MAX}.")
    outstanding_total: int
    pairs: int = Field(description="Of origin and receiver, that were looked at.")
    looked_at: datetime | None = Field(description="When that was so; null: the node could not be asked yet.")
    problem: str | None = Field(description="Why the node cannot be asked now.")


class Noted(Model):
    """What a wait knows of its own past.

    Args:
        told: what the last look told, or is told now.
        told_at: when that was said last; by the clock of the deadline.
        away_tries: looks since the node was asked last that did not reach it.
    """

    told: WaitTold = WaitTold(outstanding=[], outstanding_total=0, pairs=0, looked_at=None, problem=None)
    told_at: datetime | None = None
    away_tries: int = 0


class WaitResult(Model):
    """How a wait has ended."""

    awaited: list[AwaitedRead]
    wait_on: int
    is_satisfied: bool
    origins_gone: list[int] = Field(description="Dropped meanwhile, and waited for no longer.")
    pairs: int = Field(description="Of origin and receiver, at the last look.")
    outstanding: list[OutstandingRead]
    outstanding_total: int
    looked_at: datetime | None
    deadline: datetime | None = Field(description="null: it would have waited for ever.")


def outstanding_read(outstanding: Outstanding) -> OutstandingRead:
    """Show who is outstanding."""
    return OutstandingRead(
        origin=outstanding.origin,
        seqno=outstanding.seqno,
        receiver=outstanding.receiver,
        confirmed_seqno=outstanding.confirmed_seqno,
        behind=outstanding.behind,
        why=outstanding.why,
    )
