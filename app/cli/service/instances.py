"""`lethe instance`: the processes that run jobs."""

import typer

from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service

app = typer.Typer(
    name="instance", no_args_is_help=True, add_completion=False, help="The processes that run jobs."
)


@app.callback()
def _root() -> None:
    """Keep `list` a command of its own."""


@app.command("list")
@on_service
def list_instances(session: Session) -> int:
    """List the instances of the service, and whether each has been heard of lately.

    Example: lethe instance list
    """
    found = list(session.client.instances.list())
    session.out.document({"items": [each.raw for each in found]})
    session.out.table(
        ["instance", "host", "role", "version", "alive", "labels", "started", "last heard"],
        [
            [
                *[each.id, each.hostname, each.role, each.version, each.alive],
                *[each.labels, each.started_at, each.heartbeat_at],
            ]
            for each in found
        ],
    )
    return ExitCode.OK
