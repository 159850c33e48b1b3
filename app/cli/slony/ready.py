"""`lethe slony ready`: whether slonik would have to wait before a command, and waiting until it need not."""

from collections.abc import Iterator
from enum import StrEnum
from time import monotonic
from typing import Annotated, Any, Final

import typer
from lethe_client import Precondition

from app.cli.shell.arguments import StoreId
from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service
from app.cli.slony.results import number

WAIT_DEFAULT_S: Final = 600.0
"""As of `lethe slony wait`; slonik itself waits for ever here."""
HELD_SHOWN_MAX: Final = 20


class Command(StrEnum):
    """Before what slonik waits, or looks whether it may go on."""

    SUBSCRIBE_SET = "SUBSCRIBE_SET"
    RESUBSCRIBE_NODE = "RESUBSCRIBE_NODE"
    STORE_NODE = "STORE_NODE"
    DROP_NODE = "DROP_NODE"
    CLONE_PREPARE = "CLONE_PREPARE"
    CREATE_SET = "CREATE_SET"
    MERGE_SET = "MERGE_SET"
    LOCK_SET = "LOCK_SET"
    MOVE_SET = "MOVE_SET"
    FAILOVER = "FAILOVER"
    SUBMIT_TO_OTHER_NODE = "SUBMIT_TO_OTHER_NODE"


CommandArgument = Annotated[
    Command,
    typer.Argument(
        metavar="COMMAND",
        case_sensitive=False,
        help="A command of slonik; SUBMIT_TO_OTHER_NODE is every other one that makes an event.",
    ),
]


def _node(help_: str) -> Any:
    return typer.Option(min=1, metavar="NODE", help=help_)


@on_service
def ready(
    session: Session,
    command: CommandArgument,
    store: StoreId,
    *,
    provider: Annotated[int | None, _node("SUBSCRIBE_SET, RESUBSCRIBE_NODE, CLONE_PREPARE.")] = None,
    receiver: Annotated[int | None, _node("Nothing of it is waited for.")] = None,
    node: Annotated[int | None, _node("To be dropped, new, or failed.")] = None,
    origin: Annotated[int | None, _node("Of the set.")] = None,
    event_node: Annotated[int | None, _node("Where the command is submitted.")] = None,
    previous_event_node: Annotated[
        int | None, _node("Where the command before it in the script was; without: it is the first.")
    ] = None,
    backup_node: Annotated[int | None, _node("FAILOVER: who takes the place.")] = None,
    set_: Annotated[int | None, typer.Option("--set", min=1, help="MERGE_SET: the set that stays.")] = None,
    add_set: Annotated[int | None, typer.Option(min=1, help="MERGE_SET: the set that goes into it.")] = None,
    as_program: Annotated[
        bool,
        typer.Option("--as-program", help="The rule of slonik's code, not the stricter one of its manual."),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it may be submitted.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="With --wait; 0: for ever.")
    ] = WAIT_DEFAULT_S,
) -> int:
    """Tell whether slonik would have to wait before a command. Exit 0 where it may be submitted, else 75.

    Example: lethe slony ready SUBSCRIBE_SET lab-1 --provider 1 --wait --timeout 600
    """
    nodes = {
        "provider": provider,
        "receiver": receiver,
        "node": node,
        "origin": origin,
        "event_node": event_node,
        "previous_event_node": previous_event_node,
        "backup_node": backup_node,
        "set": set_,
        "add_set": add_set,
    }
    asked: dict[str, Any] = {"as_program": as_program} | nodes
    if not wait:
        return _shown(session, session.client.slony.precondition(store, command.value, **asked))
    waited = session.client.slony.ready(store, command.value, timeout_s=timeout or None, **asked)
    return _shown(session, _followed(session, waited))


def _followed(session: Session, waited: Iterator[Precondition]) -> Precondition:
    """Say on stderr who holds it, each time that it is told; the last is the answer."""
    began, last = monotonic(), None
    try:
        for last in waited:
            if not last.met:
                session.out.note(f"waiting for {monotonic() - began:.0f} s: {_held_shortly(last)}")
    except KeyboardInterrupt:
        session.out.note("Not waited to the end; nothing is left of it in the service.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    assert last is not None, "it looks once at least"
    return last


def _held_shortly(found: Precondition) -> str:
    if found.problem is not None:
        return f"the service could not look: {found.problem}"
    return "; ".join(each.detail for each in found.held_by[:HELD_SHOWN_MAX]) or "the service names no reason"


def _shown(session: Session, found: Precondition) -> int:
    told = {"met": found.met, "command": found.command, "problem": found.problem}
    session.out.document(found.raw if found.problem is None else {**found.raw, **told})
    words = "may be submitted" if found.met else "has to wait"
    session.out.say(f"{'READY' if found.met else 'NOT READY'}: {found.command} {words}.")
    if found.problem is not None:
        session.out.note(f"The service could not look: {found.problem}")
    if found.held_by:
        rows = [[number(each.node), each.why, each.detail] for each in found.held_by[:HELD_SHOWN_MAX]]
        session.out.table(["node", "why", "what is in the way"], rows)
        for advice in dict.fromkeys(each.advice for each in found.held_by):
            session.out.note(f"  {advice}")
        if len(found.held_by) > HELD_SHOWN_MAX:
            session.out.note(f"  and {len(found.held_by) - HELD_SHOWN_MAX} more: --json shows all")
    return ExitCode.OK if found.met else ExitCode.TRY_AGAIN
