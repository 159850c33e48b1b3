"""`lethe ds389`: replicas of 389 Directory Server."""

import typer

from app.cli.ds389.health import health
from app.cli.ds389.lost import lost
from app.cli.ds389.topology import topology

app = typer.Typer(
    name="ds389",
    no_args_is_help=True,
    add_completion=False,
    help="Replicas of 389 Directory Server: health, topology, and whether anything was lost.",
)
app.command("health")(health)
app.command("topology")(topology)
app.command("lost")(lost)
