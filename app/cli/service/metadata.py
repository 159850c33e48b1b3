"""`lethe metadata`: back up, restore and check what Lethe itself remembers, on the machine of the service."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from app.cli.service.process import DataDir, Json, MetadataUrl, run_process
from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.output import Output
from app.keeping.backup import back_up
from app.keeping.check import check_backup, check_live
from app.keeping.errors import NotKept
from app.keeping.models import CheckRead
from app.keeping.restore import restore as bring_back
from app.settings import Settings

app = typer.Typer(
    name="metadata",
    no_args_is_help=True,
    add_completion=False,
    help="Lethe's own metadata: database, instance id, signing key, admin token; not archives.",
)
NewFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")]
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a backup.")]
MaybeFolder = Annotated[
    Path | None, typer.Argument(metavar="[DIR]", help="The folder of a backup; none: the live metadata.")
]


def _run(
    name: str,
    act: Callable[[Settings, Output], int],
    *,
    data_dir: Path | None,
    metadata_url: str | None,
    json: bool,
) -> int:
    out = Output(json=json)

    def process(settings: Settings) -> int:
        try:
            return act(settings, out)
        except NotKept as error:
            return out.complain(Complaint(error.code, error.detail, ExitCode(error.exit_code), error.advice))

    given = {"data_dir": data_dir, "metadata_url": metadata_url}
    return run_process(f"metadata {name}", process, given, json=json, has_document=True)


@app.command("backup")
def backup(
    into: NewFolder, *, data_dir: DataDir = None, metadata_url: MetadataUrl = None, json: Json = False
) -> int:
    """Write a backup beside a running service; a folder without manifest.json is none.

    Example: lethe metadata backup /backup/lethe-monday --data-dir /var/lib/lethe
    """

    def act(settings: Settings, out: Output) -> int:
        done = back_up(settings, into, out.note)
        out.document(done.model_dump(mode="json"))
        manifest = done.manifest
        out.facts(
            {
                "backup": done.place,
                "engine": manifest.engine,
                "revision": manifest.revision,
                "instance": manifest.instance_id,
                "files": len(manifest.files),
                "bytes": sum(file.bytes for file in manifest.files),
            }
        )
        for name in manifest.not_included:
            out.note(f"not part of it: {name}")
        return ExitCode.OK

    return _run("backup", act, data_dir=data_dir, metadata_url=metadata_url, json=json)


@app.command("restore")
def restore(
    folder: Folder, *, data_dir: DataDir = None, metadata_url: MetadataUrl = None, json: Json = False
) -> int:
    """Bring a backup back, into an empty data directory (and an empty PostgreSQL database).

    Example: lethe metadata restore /backup/lethe-monday --data-dir /var/lib/lethe-new
    """

    def act(settings: Settings, out: Output) -> int:
        done = bring_back(settings, folder, out.note)
        out.document(done.model_dump(mode="json"))
        out.facts({"restored": done.data_dir, "revision": done.revision, "instance": done.instance_id})
        out.say("What to do next:")
        for step in done.next:
            out.say(f"  {step}")
        return ExitCode.OK

    return _run("restore", act, data_dir=data_dir, metadata_url=metadata_url, json=json)


@app.command("check")
def check(
    folder: MaybeFolder = None,
    *,
    data_dir: DataDir = None,
    metadata_url: MetadataUrl = None,
    json: Json = False,
) -> int:
    """Look at each byte of a backup, or at the metadata in use; exit 1 where something is wrong.

    Example: lethe metadata check --data-dir /var/lib/lethe
    """

    def act(settings: Settings, out: Output) -> int:
        said = check_live(settings) if folder is None else check_backup(folder)
        out.document(said.model_dump(mode="json"))
        _tell(said, out)
        return ExitCode.OK if said.ok else ExitCode.FAILED

    return _run("check", act, data_dir=data_dir, metadata_url=metadata_url, json=json)


def _tell(said: CheckRead, out: Output) -> None:
    out.facts(
        {
            "checked": said.place,
            "engine": said.engine,
            "made at": said.made_at,
            "revision": said.revision,
            "revision of this program": said.revision_of_this_program,
            "instance": said.instance_id,
            "signing key": said.signing_key_id,
            "stores": said.stores,
            "rows": sum(said.rows.values()),
        }
    )
    for note in said.notes:
        out.note(note)
    for problem in said.problems:
        out.note(f"{problem.code}: {problem.detail}")
        out.note(f"  {problem.advice}")
    out.say("No problem was found." if said.ok else f"{len(said.problems)} problems: do not rely on it.")
