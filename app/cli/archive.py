"""`lethe archive`: what purges kept."""

import re
from pathlib import Path
from typing import Annotated

import typer

from app.cli.shell.arguments import Timeout
from app.cli.shell.exits import ExitCode
from app.cli.shell.job_options import EngineChoice, Wait
from app.cli.shell.session import Session, on_service
from app.cli.shell.store_filter import note_unknown_stores
from app.cli.shell.watching import finish

app = typer.Typer(
    name="archive",
    no_args_is_help=True,
    add_completion=False,
    help="What purges kept: list, verify, restore.",
)

Engine = Annotated[
    EngineChoice | None, typer.Option("--engine", case_sensitive=False, help="What reads the files.")
]
ArchiveId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the purge that wrote it.")]

SCHEMA_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")


@app.command("list")
@on_service
def list_archives(
    session: Session, *, store: Annotated[str | None, typer.Option(help="Only of this store.")] = None
) -> int:
    """List the archives.

    Example: lethe archive list
    """
    archives = list(session.client.archives.list(store=store))
    session.out.document({"items": [archive.raw for archive in archives]})
    session.out.table(
        ["job", "store", "created", "files", "rows", "bytes", "expires", "directory"],
        [
            (
                each.job_id,
                each.store,
                each.created_at,
                each.files,
                each.rows,
                each.bytes,
                each.expires_at,
                each.directory,
            )
            for each in archives
        ],
    )
    if store and not archives:
        note_unknown_stores(session, [store])
    return ExitCode.OK


@app.command("verify")
@on_service
def verify(
    session: Session, job: ArchiveId, *, engine: Engine = None, wait: Wait = True, timeout: Timeout = None
) -> int:
    """Read every file again and compare it with the manifest. Exit 1 where one is missing or differs.

    Example: lethe archive verify job_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    started = session.client.archives.verify(job, engine=engine)
    return finish(session, started, wait=wait, timeout_s=timeout)


@app.command("restore")
@on_service
def restore(
    session: Session,
    job: ArchiveId,
    *,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|SCHEMA", help="A new SQLite file (anything with a / or a .), or a schema's name."
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Into the live tables; any key conflict refuses that unit.")
    ] = False,
    wait: Wait = True,
    timeout: Timeout = None,
) -> int:
    """Bring archived rows back: into a file or a schema beside the live tables, or into them.

    Example: lethe archive restore job_01jdb5q6w3r8m2k4n7p9s0t1v2 --into restored
    """
    if (into is not None) == live:
        raise typer.BadParameter("give one of them", param_hint="--into / --live")
    archives = session.client.archives
    if into is None:
        started = archives.restore_live(job)
    elif SCHEMA_NAME.fullmatch(into):
        started = archives.restore_into_schema(job, into)
    else:
        started = archives.restore_into_file(job, str(Path(into).absolute()))
    return finish(session, started, wait=wait, timeout_s=timeout)
