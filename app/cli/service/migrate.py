"""`lethe migrate`: the metadata database."""

from typing import Annotated

import typer

from app.cli.service.process import DataDir, Json, MetadataUrl, run_process
from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.output import Output
from app.server import migrate as run_migrate

app = typer.Typer(name="migrate", add_completion=False)
Down = Annotated[
    bool, typer.Option("--down", help="There is no way down: says how to go back to a former version.")
]
NO_WAY_DOWN = Complaint(
    "NO_WAY_DOWN",
    "metadata is never brought to a former version: what the newer one wrote would be lost",
    ExitCode.CONFIGURATION,
    "To go back: stop all of Lethe; with the former version run `lethe metadata restore BACKUP` into a new"
    " data directory (and an empty PostgreSQL database); then `lethe recover STORE` for each store. BACKUP"
    " is one that `lethe metadata backup` made before the upgrade. Nothing was changed now.",
)


@app.command("migrate")
def migrate(
    *, down: Down = False, data_dir: DataDir = None, metadata_url: MetadataUrl = None, json: Json = False
) -> int:
    """Bring the metadata database to this version.

    Example: lethe migrate --data-dir /var/lib/lethe
    """
    if down:
        return Output(json=json).complain(NO_WAY_DOWN)
    given = {"data_dir": data_dir, "metadata_url": metadata_url}
    return run_process("migrate", run_migrate, given, json=json)
