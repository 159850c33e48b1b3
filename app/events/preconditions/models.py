"""The waits before slonik's commands, as clients ask for them and as they are answered."""

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from app.events.models import NodeId
from app.kit.model import Model
from spark.events.preconditions.records import Command, What
from spark.events.waiting import Why

PREVIOUS: Final = "previous_event_node"
REQUIRED: Final = {
    Command.SUBSCRIBE_SET: ("provider",),
    Command.DROP_NODE: ("node",),
    Command.CLONE_PREPARE: ("provider",),
    Command.CREATE_SET: ("origin",),
    Command.SUBMIT_TO_OTHER_NODE: ("event_node", PREVIOUS),
    Command.STORE_NODE: ("node",),
    Command.RESUBSCRIBE_NODE: ("provider", "origin"),
    Command.MERGE_SET: ("origin", "set", "add_set"),
    Command.MOVE_SET: ("origin",),
    Command.LOCK_SET: ("origin",),
    Command.FAILOVER: ("node", "backup_node"),
}
OPTIONAL: Final = {
    Command.SUBSCRIBE_SET: ("receiver", "event_node", PREVIOUS),
    Command.DROP_NODE: ("event_node",),
    Command.CLONE_PREPARE: (PREVIOUS,),
    Command.CREATE_SET: (PREVIOUS,),
    Command.STORE_NODE: ("event_node", PREVIOUS),
    Command.RESUBSCRIBE_NODE: ("receiver", PREVIOUS),
    Command.MERGE_SET: (PREVIOUS,),
    Command.MOVE_SET: ("receiver", PREVIOUS),
}
NODE_FIELDS: Final = ("provider", "receiver", "node", "origin", "event_node", PREVIOUS, "backup_node")
NEW_NODES: Final = frozenset({(Command.STORE_NODE, "node")})
"""Fields that may name a node that nobody knows yet."""
FIELDS: Final = (*NODE_FIELDS, "set", "add_set")
AWAITED_MAX: Final = 500
SET_MAX: Final = 2**31 - 1
_MISSING: Final[dict[str, Any]] = {
    "origin": 1,
    "seqno": 5_000_000_131,
    "type": "STORE_SET",
    "node": 3,
    "confirmed_seqno": 5_000_000_113,
    "why": "BEHIND",
}


_AWAITED: Final[dict[str, Any]] = {
    "what": "CONFIG",
    "origin": 1,
    "seqno": 5_000_000_131,
    "type": "STORE_SET",
}
_HELD: Final[dict[str, Any]] = {
    "node": 3,
    "why": "SLON_NOT_RUNNING",
    "detail": "node 3 has not confirmed STORE_SET (1,5000000131), only up to 5000000113;"
    " its slon is not connected",
    "advice": "Start the slon of node 3.",
}
SetId = Annotated[int, Field(strict=True, ge=1, le=SET_MAX)]


class AwaitedEvent(Model):
    """Up to where an origin must be confirmed, as it was fixed at the first look."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_AWAITED]})

    what: What = Field(description="Which confirmations count.")
    origin: NodeId = Field(description="Whose events; of TRANSACTIONS the node where they run.")
    seqno: Annotated[int, Field(strict=True, ge=0, lt=2**63)] | None = Field(
        description="The event; of TRANSACTIONS the first transaction that is not waited for. null: there is"
        " no such event, and a confirmation of any is enough."
    )
    type: Annotated[str, Field(max_length=100)] | None = Field(description="Of the event.")


class PreconditionRequest(Model):
    """A command of slonik, with the nodes that its wait is about."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"command": "SUBSCRIBE_SET", "provider": 1, "receiver": 3}]},
    )

    command: Command = Field(
        description="SUBSCRIBE_SET and CLONE_PREPARE name `provider`, CREATE_SET, MOVE_SET and LOCK_SET"
        " `origin`, RESUBSCRIBE_NODE `provider` and `origin`, MERGE_SET `origin`, `set` and `add_set`,"
        " FAILOVER `node` and `backup_node`; STORE_NODE and DROP_NODE `node` and, if it is not the store's"
        " own node, `event_node`. Every other command that makes an event is SUBMIT_TO_OTHER_NODE, with"
        " `event_node` and `previous_event_node`."
    )
    provider: NodeId | None = Field(
        default=None,
        description="Must have all configuration events; of CLONE_PREPARE the node that is cloned.",
    )
    receiver: NodeId | None = Field(
        default=None, description="SUBSCRIBE_SET, RESUBSCRIBE_NODE and MOVE_SET wait for nothing of it."
    )
    node: NodeId | None = Field(
        default=None, description="The node to be dropped, the new one, or the one that has failed."
    )
    origin: NodeId | None = Field(default=None, description="Of the set; where the command is submitted.")
    event_node: NodeId | None = Field(
        default=None, description="Where the command is to be submitted; of SUBSCRIBE_SET the set's origin."
    )
    previous_event_node: NodeId | None = Field(
        default=None, description="Where the command before it in the same script was; null: it is the first."
    )
    backup_node: NodeId | None = Field(default=None, description="Who takes the place of the failed node.")
    set: SetId | None = Field(default=None, description="The set that stays.")
    add_set: SetId | None = Field(default=None, description="The set that is merged into it.")
    as_program: bool = Field(
        default=False,
        strict=True,
        description="The rule of slonik's code, as if it had an ADMIN CONNINFO for every node, instead of the"
        " documented one.",
    )
    awaited: list[AwaitedEvent] = Field(
        default_factory=list,
        max_length=AWAITED_MAX,
        description="What an answer has fixed, so that the next request waits for nothing younger; empty: all"
        " that is there now.",
    )


class NotEvaluatedWhy(StrEnum):
    """Why a node could not be asked."""

    NOT_REGISTERED = "NOT_REGISTERED"
    UNREACHABLE = "UNREACHABLE"
    NOT_PERMITTED = "NOT_PERMITTED"


class MissingRead(Model):
    """An event that a node has not confirmed."""

    model_config = ConfigDict(json_schema_extra={"examples": [_MISSING]})

    origin: int
    seqno: int | None = Field(
        description="null: no such event is left, and the node never confirmed anything."
    )
    type: str | None
    node: int = Field(description="Where it is missing.")
    confirmed_seqno: int | None = Field(description="null: it never confirmed anything of this origin.")
    why: Why


class NotEvaluatedRead(Model):
    """A node whose own word is needed, and that was not asked."""

    node: int
    why: NotEvaluatedWhy = Field(
        description="NOT_REGISTERED: it is no store of this cluster. UNREACHABLE: it may be a store that does"
        " not answer. NOT_PERMITTED: the token is limited to other stores."
    )
    detail: str | None = None


class HeldWhy(StrEnum):
    """Why a node holds a command of slonik back."""

    BEHIND = "BEHIND"
    NOT_HEARD = "NOT_HEARD"
    SLON_NOT_RUNNING = "SLON_NOT_RUNNING"
    NOT_ACTIVE = "NOT_ACTIVE"
    ORIGIN_GONE = "ORIGIN_GONE"
    NOT_REGISTERED = "NOT_REGISTERED"
    UNREACHABLE = "UNREACHABLE"
    NOT_PERMITTED = "NOT_PERMITTED"
    TRANSACTION_RUNS = "TRANSACTION_RUNS"
    NO_PATH_TO_BACKUP = "NO_PATH_TO_BACKUP"
    NOT_A_FORWARDER = "NOT_A_FORWARDER"


class HeldRead(Model):
    """A node that holds the command back, and what to do."""

    model_config = ConfigDict(json_schema_extra={"examples": [_HELD]})

    node: int
    why: HeldWhy
    detail: str = Field(description="What is in the way, in words.")
    advice: str = Field(description="What to do.")


class PreconditionRead(Model):
    """Whether slonik's command need not wait."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "met": False,
                    "command": "SUBSCRIBE_SET",
                    "as_program": False,
                    "missing": [_MISSING],
                    "not_evaluated": [{"node": 2, "why": "NOT_REGISTERED", "detail": None}],
                    "evaluated": [1, 3],
                    "awaited": [_AWAITED],
                    "held_by": [_HELD],
                }
            ]
        }
    )

    met: bool = Field(description="Nothing is in the way, and every node that matters was asked.")
    command: Command
    as_program: bool
    missing: list[MissingRead]
    not_evaluated: list[NotEvaluatedRead]
    evaluated: list[int] = Field(description="The nodes that were asked.")
    awaited: list[AwaitedEvent] = Field(
        description="Up to where it waits, fixed at the first look as slonik does at its start. Send it again"
        " with the next request of the same wait."
    )
    held_by: list[HeldRead] = Field(description="Who holds it back, and what to do; empty where it is met.")
