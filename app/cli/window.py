"""`lethe window`: when destructive jobs may work."""

from typing import Annotated

import typer

from app.cli.shell.arguments import pairs
from app.cli.shell.exits import ExitCode
from app.cli.shell.output import cell
from app.cli.shell.session import Session, on_service

app = typer.Typer(
    name="window", no_args_is_help=True, add_completion=False, help="When destructive jobs may work."
)


@app.command("add")
@on_service
def add(
    session: Session,
    kind: Annotated[str, typer.Argument(metavar="ALLOW|DENY", help="Whether jobs work or rest inside.")],
    *,
    cron: Annotated[str, typer.Option(metavar="'M H DAY MONTH WEEKDAY'", help="When it begins.")],
    duration: Annotated[str, typer.Option(metavar="DURATION", help="How long it lasts, such as PT8H.")],
    time_zone: Annotated[str | None, typer.Option(metavar="ZONE", help="IANA zone; without it UTC.")] = None,
    intensity: Annotated[
        float | None, typer.Option(min=0, max=1, help="The share of the time that is worked inside.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="NAME=VALUE", help="Only stores with all of these. Repeatable."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What it is called.")] = None,
) -> int:
    """Add a window. It acts on running jobs within seconds.

    Example: lethe window add ALLOW --cron "0 22 * * *" --duration PT6H
    """
    made = session.client.windows.create(
        kind.upper(),
        cron=cron,
        duration=duration,
        time_zone=time_zone,
        intensity=intensity,
        labels=pairs(label, option="--label"),
        name=name,
    )
    session.out.document(made.raw)
    when = (
        f"is open until {cell(made.open_until)}"
        if made.open_until
        else f"begins next at {cell(made.next_at)}"
    )
    session.out.say(f"Window {made.id} is added; it {when}.")
    return ExitCode.OK


@app.command("list")
@on_service
def list_windows(session: Session) -> int:
    """List the windows, and whether they are open.

    Example: lethe window list
    """
    found = list(session.client.windows.list())
    session.out.document({"items": [each.raw for each in found]})
    session.out.table(
        ["window", "name", "kind", "begins", "lasts", "intensity", "labels", "open until", "next"],
        [
            [
                each.id,
                each.name,
                each.kind,
                f"{each.cron} {each.time_zone}",
                each.duration,
                each.intensity,
                ", ".join(f"{name}={value}" for name, value in each.labels.items()),
                each.open_until,
                each.next_at,
            ]
            for each in found
        ],
    )
    return ExitCode.OK


@app.command("remove")
@on_service
def remove(
    session: Session, window: Annotated[str, typer.Argument(metavar="WINDOW", help="Id of the window.")]
) -> int:
    """Remove a window. Jobs that it held look again at once.

    Example: lethe window remove win_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    session.client.windows.remove(window)
    session.out.document({"id": window, "removed": True})
    session.out.say(f"Window {window} is removed.")
    return ExitCode.OK
