"""`lethe serve`: the service."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.service.process import DataDir, Json, Label, MetadataUrl, run_process
from app.server import serve as run_serve

app = typer.Typer(name="serve", add_completion=False)


@app.command("serve")
def serve(
    *,
    data_dir: DataDir = None,
    host: Annotated[str | None, typer.Option("--host", help="Default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="Default 8765.")] = None,
    metadata_url: MetadataUrl = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", help="Its key, PEM.")] = None,
    behind_proxy: Annotated[
        bool | None, typer.Option("--behind-proxy", help="TLS ends before us: other addresses may be bound.")
    ] = None,
    migrate: Annotated[
        bool | None, typer.Option("--migrate", help="Bring PostgreSQL metadata to this version first.")
    ] = None,
    api_processes: Annotated[
        int | None,
        typer.Option("--api-processes", min=1, max=64, help="That answer the API (PostgreSQL). Default 1."),
    ] = None,
    label: Label = None,
    json: Json = False,
) -> int:
    """Run the service: API, runner, metadata. Every option also has its LETHE_ variable.

    Example: lethe serve --data-dir /var/lib/lethe --port 8765
    """
    given = {
        "data_dir": data_dir,
        "host": host,
        "port": port,
        "metadata_url": metadata_url,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "behind_proxy": behind_proxy,
        "migrate": migrate,
        "api_processes": api_processes,
        "labels": label,
    }
    return run_process("serve", run_serve, given, json=json)
