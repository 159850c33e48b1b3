"""`lethe migrate`: the metadata database."""

import typer

from app.cli.service.process import DataDir, Json, MetadataUrl, run_process
from app.server import migrate as run_migrate

app = typer.Typer(name="migrate", add_completion=False)


@app.command("migrate")
def migrate(*, data_dir: DataDir = None, metadata_url: MetadataUrl = None, json: Json = False) -> int:
    """Bring the metadata database to this version."""
    given = {"data_dir": data_dir, "metadata_url": metadata_url}
    return run_process("migrate", run_migrate, given, json=json)
