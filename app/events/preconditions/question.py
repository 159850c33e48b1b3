"""A request as the question that the rules are asked; what makes no sense is refused before all else."""

from app.errors import InvalidRequest
from app.events.preconditions.models import FIELDS, OPTIONAL, PREVIOUS, REQUIRED, PreconditionRequest
from spark.events.preconditions.records import Command, Question

Faults = list[dict[str, str]]


def check_request(request: PreconditionRequest) -> None:
    """Refuse nodes that are missing, make no sense for the command, or are the same.

    Raises: InvalidRequest: each with its pointer.
    """
    required = REQUIRED[request.command]
    allowed = {*required, *OPTIONAL.get(request.command, ())}
    faults: Faults = []
    for name in FIELDS:
        is_given = getattr(request, name) is not None
        if name in required and not is_given:
            faults.append({"pointer": f"/{name}", "detail": f"{request.command} needs it"})
        elif is_given and name not in allowed:
            faults.append({"pointer": f"/{name}", "detail": f"{request.command} has none"})
    faults += _same(request) + _without_place(request) + _twice(request)
    if faults:
        raise InvalidRequest(f"{len(faults)} field(s) are not valid", errors=faults)


def _same(request: PreconditionRequest) -> Faults:
    place = request.event_node if request.command is Command.SUBMIT_TO_OTHER_NODE else None
    pairs = (
        ("receiver", request.receiver, request.provider, "node {} is the provider"),
        (PREVIOUS, request.previous_event_node, place, "node {} is the event node itself"),
        ("event_node", request.event_node, request.node, _dropped(request)),
        ("backup_node", request.backup_node, request.node, "node {} is the failed one"),
        ("add_set", request.add_set, request.set, "set {} is merged into itself"),
    )
    return [
        {"pointer": f"/{name}", "detail": what.format(one)}
        for name, one, other, what in pairs
        if one is not None and one == other
    ]


def _dropped(request: PreconditionRequest) -> str:
    is_new = request.command is Command.STORE_NODE
    return "node {} is the new one" if is_new else "node {} is to be dropped"


def _without_place(request: PreconditionRequest) -> Faults:
    """SUBSCRIBE SET goes to the set's origin, which is not named otherwise."""
    if request.command is not Command.SUBSCRIBE_SET:
        return []
    if (request.event_node is None) == (request.previous_event_node is None):
        return []
    missing, given = ("event_node", PREVIOUS) if request.event_node is None else (PREVIOUS, "event_node")
    return [{"pointer": f"/{missing}", "detail": f"SUBSCRIBE_SET needs it with {given}"}]


def _twice(request: PreconditionRequest) -> Faults:
    seen, faults = set(), []
    for index, each in enumerate(request.awaited):
        if (each.what, each.origin) in seen:
            faults.append({"pointer": f"/awaited/{index}", "detail": "the same, once more"})
        seen.add((each.what, each.origin))
    return faults


def question_of(request: PreconditionRequest, *, own: int) -> Question:
    """What the rules are asked.

    Args:
        own: the node of the store that was asked: the event node where none is named.
    Raises: InvalidRequest: the node to be dropped, or the new one, would be the event node.
    """
    command, previous = request.command, request.previous_event_node
    event_node = own if request.event_node is None else request.event_node
    if command in (Command.DROP_NODE, Command.STORE_NODE) and event_node == request.node:
        what = (
            "a node does not drop itself"
            if command is Command.DROP_NODE
            else "the new node is the event node"
        )
        raise InvalidRequest(
            "1 field(s) are not valid",
            errors=[{"pointer": "/event_node", "detail": f"{what}: name another one"}],
        )
    if command is Command.DROP_NODE:
        return Question(command, _given(request.node), other=event_node)
    if command is Command.STORE_NODE:
        return Question(command, event_node, other=request.node, event_node=event_node, previous=previous)
    if command is Command.SUBMIT_TO_OTHER_NODE:
        return Question(command, _given(request.event_node), other=previous)
    if command is Command.FAILOVER:
        return Question(command, _given(request.node), other=request.backup_node)
    if command is Command.SUBSCRIBE_SET:
        return Question(command, _given(request.provider), event_node=request.event_node, previous=previous)
    return _at_origin(request, previous)


def _at_origin(request: PreconditionRequest, previous: int | None) -> Question:
    """Commands that go to the origin of the set, or to the provider where there is none."""
    provider, origin = request.provider, request.origin
    node = _given(provider if provider is not None else origin)
    place = node if origin is None else origin
    sets = frozenset(each for each in (request.set, request.add_set) if each is not None)
    return Question(request.command, node, event_node=place, previous=previous, sets=sets)


def _given(node: int | None) -> int:
    assert node is not None, "checked before"
    return node
