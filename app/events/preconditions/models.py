"""The waits before slonik's commands, as clients ask for them and as they are answered."""

from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from app.events.models import NodeId
from spark.events.preconditions import Command
from spark.events.waiting import Why

REQUIRED: Final = {
    Command.SUBSCRIBE_SET: ("provider",),
    Command.DROP_NODE: ("node",),
    Command.CLONE_PREPARE: ("provider",),
    Command.CREATE_SET: ("origin",),
    Command.SUBMIT_TO_OTHER_NODE: ("event_node", "previous_event_node"),
}
OPTIONAL: Final = {Command.SUBSCRIBE_SET: ("receiver",), Command.DROP_NODE: ("event_node",)}
NODE_FIELDS: Final = ("provider", "receiver", "node", "origin", "event_node", "previous_event_node")
_MISSING: Final[dict[str, Any]] = {
    "origin": 1,
    "seqno": 5_000_000_131,
    "type": "STORE_SET",
    "node": 3,
    "confirmed_seqno": 5_000_000_113,
    "why": "BEHIND",
}


class PreconditionRequest(BaseModel):
    """A command of slonik, with the nodes that its wait is about."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"command": "SUBSCRIBE_SET", "provider": 1, "receiver": 3}]},
    )

    command: Command = Field(
        description="SUBSCRIBE_SET and CLONE_PREPARE name `provider`, CREATE_SET `origin`, DROP_NODE `node`"
        " and, if it is not the store's own node, `event_node`; SUBMIT_TO_OTHER_NODE `event_node` and"
        " `previous_event_node`."
    )
    provider: NodeId | None = Field(
        default=None,
        description="Must have all configuration events; of CLONE_PREPARE the node that is cloned.",
    )
    receiver: NodeId | None = Field(default=None, description="SUBSCRIBE_SET waits for nothing of it.")
    node: NodeId | None = Field(default=None, description="The node to be dropped.")
    origin: NodeId | None = Field(default=None, description="Of the new set.")
    event_node: NodeId | None = Field(default=None, description="Where the command is to be submitted.")
    previous_event_node: NodeId | None = Field(default=None, description="Where the command before was.")
    as_program: bool = Field(
        default=False,
        strict=True,
        description="The rule of slonik's code, as if it had an ADMIN CONNINFO for every node, instead of the"
        " documented one.",
    )


class NotEvaluatedWhy(StrEnum):
    """Why a node could not be asked."""

    NOT_REGISTERED = "NOT_REGISTERED"
    UNREACHABLE = "UNREACHABLE"
    NOT_PERMITTED = "NOT_PERMITTED"


class MissingRead(BaseModel):
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


class NotEvaluatedRead(BaseModel):
    """A node whose own word is needed, and that was not asked."""

    node: int
    why: NotEvaluatedWhy = Field(
        description="NOT_REGISTERED: it is no store of this cluster. UNREACHABLE: it may be a store that does"
        " not answer. NOT_PERMITTED: the token is limited to other stores."
    )
    detail: str | None = None


class PreconditionRead(BaseModel):
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
                }
            ]
        }
    )

    met: bool = Field(description="Nothing is missing, and every node that matters was asked.")
    command: Command
    as_program: bool
    missing: list[MissingRead]
    not_evaluated: list[NotEvaluatedRead]
    evaluated: list[int] = Field(description="The nodes that were asked.")
