"""`lethe serve`, `worker`, `migrate`: the processes of the service."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from app.cli.exits import Complaint, ExitCode
from app.cli.output import Output
from app.server import migrate as run_migrate
from app.server import run_worker
from app.server import serve as run_serve
from app.settings import Settings

serve_app = typer.Typer(name="serve", add_completion=False)
worker_app = typer.Typer(name="worker", add_completion=False)
migrate_app = typer.Typer(name="migrate", add_completion=False)

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Default: LETHE_DATA_DIR, else lethe-data.")]
MetadataUrl = Annotated[
    str | None,
    typer.Option("--metadata-url", help="PostgreSQL; default: a SQLite file in the data directory."),
]
Label = Annotated[list[str] | None, typer.Option("--label", help="Of this runner. Repeatable.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")]


@serve_app.command("serve")
def serve(
    *,
    data_dir: DataDir = None,
    host: Annotated[str | None, typer.Option("--host", help="Default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="Default 8765.")] = None,
    metadata_url: MetadataUrl = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key")] = None,
    behind_proxy: Annotated[
        bool | None, typer.Option("--behind-proxy", help="TLS ends before us: other addresses may be bound.")
    ] = None,
    migrate: Annotated[
        bool | None, typer.Option("--migrate", help="Bring PostgreSQL metadata to this version first.")
    ] = None,
    label: Label = None,
    json: Json = False,
) -> int:
    """Run the service: API, runner, metadata. Every option also has its LETHE_ variable."""
    given = {
        "data_dir": data_dir,
        "host": host,
        "port": port,
        "metadata_url": metadata_url,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "behind_proxy": behind_proxy,
        "migrate": migrate,
        "labels": label,
    }
    return _run("serve", run_serve, given, Output(json=json))


@worker_app.command("worker")
def worker(
    *, data_dir: DataDir = None, metadata_url: MetadataUrl = None, label: Label = None, json: Json = False
) -> int:
    """Run a runner alone, on the same PostgreSQL metadata."""
    given = {"data_dir": data_dir, "metadata_url": metadata_url, "labels": label}
    return _run("worker", run_worker, given, Output(json=json))


@migrate_app.command("migrate")
def migrate(*, data_dir: DataDir = None, metadata_url: MetadataUrl = None, json: Json = False) -> int:
    """Bring the metadata database to this version."""
    given = {"data_dir": data_dir, "metadata_url": metadata_url}
    return _run("migrate", run_migrate, given, Output(json=json))


def _run(name: str, process: Callable[[Settings], int], given: dict[str, Any], out: Output) -> int:
    """Make the settings, options before environment, and run the process to its end."""
    try:
        settings = Settings(**{key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        return out.complain(
            Complaint(
                "SETTINGS_INVALID", "; ".join(faults), ExitCode.CONFIGURATION, "See its option or variable."
            )
        )
    code = process(settings)
    out.document({"command": name, "exit_code": code})
    return code
