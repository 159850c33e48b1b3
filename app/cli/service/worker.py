"""`lethe worker`: a runner alone."""

import typer

from app.cli.service.process import DataDir, Json, Label, MetadataUrl, run_process
from app.server import run_worker

app = typer.Typer(name="worker", add_completion=False)


@app.command("worker")
def worker(
    *, data_dir: DataDir = None, metadata_url: MetadataUrl = None, label: Label = None, json: Json = False
) -> int:
    """Run a runner alone, on the same PostgreSQL metadata as a service.

    Example: lethe worker --data-dir /var/lib/lethe-worker --metadata-url postgresql+psycopg://lethe@db/lethe
    """
    given = {"data_dir": data_dir, "metadata_url": metadata_url, "labels": label}
    return run_process("worker", run_worker, given, json=json)
