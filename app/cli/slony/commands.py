"""`lethe slony`: what a node of a Slony-I cluster knows, waiting, cleanup, log switch."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Final

import typer
from lethe_client import Confirmation, ConfirmationMatrix, Event, LogBlocker, LogStatus, LogTable

from app.cli.shell.arguments import LIMIT_DEFAULT, Limit, StoreId, instant
from app.cli.shell.exits import ExitCode
from app.cli.shell.output import cell
from app.cli.shell.session import Session, on_service
from app.cli.slony.changes import changes, copy, feed
from app.cli.slony.health import health
from app.cli.slony.jobs import cleanup, switch_log, wait
from app.cli.slony.ready import ready
from app.cli.slony.results import number
from app.cli.slony.sync import sync

DATA_SHOWN: Final = 60

app = typer.Typer(
    name="slony",
    no_args_is_help=True,
    add_completion=False,
    help="Nodes of a Slony-I cluster: health, confirmations, changes, waiting, cleanup, log switch.",
)
app.command("health")(health)
app.command("changes")(changes)
app.command("copy")(copy)
app.command("feed")(feed)
app.command("wait")(wait)
app.command("ready")(ready)
app.command("cleanup")(cleanup)
app.command("switch-log")(switch_log)
app.command("sync")(sync)

Node = Annotated[list[int] | None, typer.Option("--origin", min=0, help="Only of this node. Repeatable.")]
Type = Annotated[list[str] | None, typer.Option("--type", help="Only of this type, as SYNC. Repeatable.")]
Bound = Annotated[int | None, typer.Option(min=0, help="Bound of the event number, inclusive.")]
Time = Annotated[
    str | None, typer.Option(metavar="TIME", help="Bound of the event's time: RFC 3339, or a date.")
]


@app.command("status")
@on_service
def status(session: Session, store: StoreId) -> int:
    """Show who has confirmed what, as this node knows it, and its two log tables.

    Example: lethe slony status node1
    """
    matrix = session.client.slony.confirmations(store)
    logs = session.client.slony.log_status(store)
    session.out.document({"confirmations": matrix.raw, "log_status": logs.raw})
    session.out.facts({"node": str(matrix.local_node), "as of": matrix.as_of})
    _show_matrix(session, matrix)
    _show_logs(session, logs)
    return ExitCode.OK


@app.command("events")
@on_service
def events(
    session: Session,
    store: StoreId,
    *,
    origin: Node = None,
    type_: Type = None,
    from_seqno: Bound = None,
    upto_seqno: Bound = None,
    created_after: Time = None,
    created_before: Time = None,
    limit: Limit = LIMIT_DEFAULT,
) -> int:
    """List the events that a node holds, by origin and number.

    Example: lethe slony events node1 --origin 1
    """
    found = session.client.slony.events(
        store,
        origins=origin or (),
        types=type_ or (),
        from_seqno=from_seqno,
        upto_seqno=upto_seqno,
        created_after=instant(created_after, option="--created-after"),
        created_before=instant(created_before, option="--created-before"),
    )
    listed = list(islice(found, limit))
    session.out.document([event.raw for event in listed])
    session.out.table(["origin", "event", "type", "made", "data"], [_event(event) for event in listed])
    return ExitCode.OK


@app.command("event")
@on_service
def event(
    session: Session,
    store: StoreId,
    origin: Annotated[int, typer.Argument(metavar="ORIGIN", help="Node that made it.")],
    seqno: Annotated[int, typer.Argument(metavar="SEQNO", help="Its number.")],
) -> int:
    """Show one event, and who has confirmed it. Exit 0 whether all have or not.

    Example: lethe slony event node1 1 5000000012
    """
    found = session.client.slony.event(store, origin, seqno)
    session.out.document(found.raw)
    session.out.facts(
        {
            "event": f"{found.origin},{found.seqno}",
            "type": found.type,
            "made": found.created_at,
            "snapshot": found.snapshot,
            "data": _data(found.data),
            "outstanding": ", ".join(map(str, found.outstanding)),
            "confirmed by all": found.is_confirmed_by_all,
        }
    )
    if found.confirmed_by:
        rows = [[str(each["receiver"]), str(each["seqno"]), each.get("at")] for each in found.confirmed_by]
        session.out.table(["confirmed by", "up to", "at"], rows)
    return ExitCode.OK


@app.command("confirm")
@on_service
def confirm(
    session: Session,
    store: StoreId,
    *,
    origin: Annotated[int, typer.Option(min=1, help="Node that made the event.")],
    receiver: Annotated[int, typer.Option(min=1, help="Node that has processed it.")],
    seqno: Annotated[int, typer.Option(min=1, help="Number of the event; all older ones are confirmed too.")],
    force: Annotated[
        bool, typer.Option("--force", help="For admins, with --reason: the receiver is not asked.")
    ] = False,
    reason: Annotated[str | None, typer.Option(help="Why; it is kept in the audit.")] = None,
) -> int:
    """Confirm an event for its receiver, where the receiver's own catalog holds it.

    Example: lethe slony confirm node1 --origin 1 --receiver 2 --seqno 5000000012
    """
    if force and reason is None:
        raise typer.BadParameter("--force needs it", param_hint="--reason")
    found = session.client.slony.confirm(
        store, origin=origin, receiver=receiver, seqno=seqno, force=force, reason=reason
    )
    session.out.document(found.raw)
    session.out.facts(
        {
            "changed": found.changed,
            "confirmed up to": number(found.confirmed_seqno),
            "before": number(found.confirmed_before),
        }
    )
    return ExitCode.OK


def _show_matrix(session: Session, matrix: ConfirmationMatrix) -> None:
    """A row for each origin, a column for each receiver."""
    pairs = {(each.origin, each.receiver): each for each in matrix.items}
    nodes = sorted({node for pair in pairs for node in pair})
    inactive = {each.receiver for each in matrix.items if not each.receiver_is_active}
    names = [f"node {node} (inactive)" if node in inactive else f"node {node}" for node in nodes]
    rows = [
        [
            f"node {origin}",
            number(next((each.last_seqno for each in matrix.items if each.origin == origin), None)),
            *(_distance(pairs.get((origin, receiver))) for receiver in nodes),
        ]
        for origin in nodes
    ]
    session.out.table(["origin", "newest event", *names], rows, title="Confirmed by")


def _distance(pair: Confirmation | None) -> str:
    """How far a receiver is behind, in few words."""
    if pair is None:
        return ""
    if pair.state == "NEVER_CONFIRMED":
        return "never"
    if pair.state == "CURRENT":
        return "all"
    age = "" if pair.lag is None else f", {cell(pair.lag)}"
    return f"{pair.lag_events:,} behind{age}"


def _show_logs(session: Session, logs: LogStatus) -> None:
    session.out.table(
        ["log table", "is", "rows (estimate)", "bytes"],
        [[table.name, _part(logs, table), table.rows_estimate, table.bytes] for table in logs.tables],
        title=f"Log tables, status {logs.status}",
    )
    if logs.needs_healing:
        session.out.note(f"warning: {logs.other} counts as clean and has rows: slons do not read them")
    if logs.origins:
        columns = ["origin", "oldest SYNC", "xmin", "undrained transaction", "drained", "reason", "receiver"]
        session.out.table(columns, [_log_origin(each) for each in logs.origins])
    if logs.blockers:
        columns = ["session", "application", "user", "state", "since", "xmin", "has a lock"]
        session.out.table(columns, [_blocker(each) for each in logs.blockers])


def _part(logs: LogStatus, table: LogTable) -> str:
    """What becomes of a log table."""
    if table.role == "ACTIVE":
        return "written"
    return "to be emptied" if logs.is_switching else "clean"


def _log_origin(each: Mapping[str, Any]) -> list[Any]:
    numbers = [number(each.get(name)) for name in ("oldest_sync", "xmin", "undrained_txid")]
    more = [each.get("is_drained"), each.get("reason"), number(each.get("receiver"))]
    return [f"node {each['origin']}", *numbers, *more]


def _blocker(each: LogBlocker) -> list[Any]:
    who = [number(each.pid), each.application, each.user, each.state]
    return [*who, each.transaction_age, number(each.backend_xmin), each.has_lock]


def _event(event: Event) -> list[Any]:
    return [str(event.origin), str(event.seqno), event.type, event.created_at, _data(event.data)]


def _data(data: Sequence[Any]) -> str:
    """What an event carries, without the empty end."""
    values = list(data)
    while values and values[-1] is None:
        values.pop()
    text = " ".join("-" if value is None else str(value) for value in values)
    return text if len(text) <= DATA_SHOWN else f"{text[:DATA_SHOWN]}..."
