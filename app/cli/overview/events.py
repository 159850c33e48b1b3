"""`lethe events`: what happens to all jobs, backups and sessions."""

import json
from typing import Annotated, Any

import typer
from lethe_client import FleetEvent

from app.cli.shell.arguments import pairs
from app.cli.shell.exits import ExitCode
from app.cli.shell.output import cell
from app.cli.shell.session import Session, on_service

app = typer.Typer(name="events", add_completion=False, help="What happens, as it happens.")
PROGRESS = "job.progress"


@app.command("events")
@on_service
def events(
    session: Session,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until Ctrl-C.")] = False,
    store: Annotated[list[str] | None, typer.Option(help="Only of this store. Repeatable.")] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Of jobs, or BACKUP, REPLICATION_SESSION. Repeatable."),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Of stores with it. Repeatable.")
    ] = None,
    after: Annotated[
        int | None, typer.Option(min=0, metavar="NUMBER", help="From after this event on; else from now.")
    ] = None,
    progress: Annotated[bool, typer.Option("--progress", help="Progress too.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
) -> int:
    """Print each event once and in order, over lost connections and restarts; with --json a line each.

    Example: lethe events --follow --store shop
    """
    if not follow and limit is None:
        raise typer.BadParameter("say --follow (until Ctrl-C), or --limit", param_hint="--follow")
    stream = session.client.fleet.events(
        stores=store or (),
        kinds=[each.upper() for each in kind or ()],
        labels=pairs(label, option="--label"),
        last_event_id=after,
    )
    told = 0
    for event in stream:
        if event.type == PROGRESS and not progress:
            continue
        _tell(session, event)
        told += 1
        if limit is not None and told >= limit:
            break
    return ExitCode.OK


def _tell(session: Session, event: FleetEvent) -> None:
    if event.is_reset:
        session.out.note("lethe: events in between are not kept any more; see lethe status")
    raw: dict[str, Any] = dict(event.raw) or {"number": event.number, "type": event.type}
    session.out.line(raw)
    if event.is_reset:
        return
    facts = json.dumps(dict(event.data), ensure_ascii=False, default=str)
    place = event.store or "-"
    session.out.say(
        f"{event.number} {cell(event.at)} {place} {event.kind} {event.type} {event.subject} {facts}",
        endless=True,
    )
