"""What every command that talks to the service shares: its options, its client, and the end of its errors."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer
from lethe_client import TERMINAL, ConfigurationInvalid, Job, Lethe, LetheError, RetryPolicy

from app.cli.shell.complaints import complaint
from app.cli.shell.exits import ExitCode
from app.cli.shell.output import Output

URL_DEFAULT: Final = "http://127.0.0.1:8765"
TOKEN_FILE_MAX_BYTES: Final = 4096
# A script that finds no service wants to know soon; waits are patient all the same.
RETRIES: Final = RetryPolicy(attempts=4)
PANEL: Final = "Service"

P = ParamSpec("P")

Url = Annotated[
    str, typer.Option("--url", envvar="LETHE_URL", help="Address of the service.", rich_help_panel=PANEL)
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help="File with the token; wins over LETHE_TOKEN.", rich_help_panel=PANEL),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Data directory of a service on this machine: takes the token from DIR/admin.token.",
        rich_help_panel=PANEL,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document and nothing else.", rich_help_panel=PANEL)
]


class Interrupted(Exception):
    """Ctrl-C came while a job was watched."""

    def __init__(self, job: Job) -> None:
        super().__init__(job.id)
        self.job = job


@dataclass(frozen=True, slots=True)
class Session:
    """A client and where the command's words go; `data_dir` where one was named."""

    client: Lethe
    out: Output
    data_dir: Path | None = None


def _read_token(token_file: Path | None, data_dir: Path | None) -> str | None:
    """Find the token: an option before the environment; None where nobody gives one.

    Raises: ConfigurationInvalid: the file cannot be read, or holds none.
    """
    path = token_file or (data_dir / "admin.token" if data_dir else None)
    if path is None:
        return os.environ.get("LETHE_TOKEN") or None
    try:
        with path.open("rb") as file:
            token = file.read(TOKEN_FILE_MAX_BYTES).decode("ascii").strip()
    except OSError as error:
        raise ConfigurationInvalid(f"the token file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigurationInvalid(f"the file {path} holds no token") from None
    if not token:
        raise ConfigurationInvalid(f"the token file {path} is empty")
    return token


def _run(command: Callable[[Session], int], access: dict[str, Any]) -> int:
    out = Output(json=access["json"])
    try:
        token = _read_token(access["token_file"], access["data_dir"])
        with Lethe(access["url"], token, retries=RETRIES) as client:
            return command(Session(client, out, access["data_dir"]))
    except Interrupted as interrupted:
        job = interrupted.job
        going = "has ended" if job.state in TERMINAL else "goes on without us"
        out.note(f"Job {job.id} {going}. Watch it again: lethe job watch {job.id}")
        out.note(f"Stop it: lethe job pause {job.id}, or: lethe job abort {job.id}")
        out.document(job.raw)
        return ExitCode.INTERRUPTED
    except LetheError as error:
        return out.complain(complaint(error))


def on_service(command: Callable[Concatenate[Session, P], int]) -> Callable[..., int]:
    """Turn `(session, *, own options) -> exit code` into what typer takes: own options and the service's."""
    signature = inspect.signature(command, eval_str=True)
    _session, *own = signature.parameters.values()
    shared: dict[str, tuple[Any, Any]] = {"url": (Url, URL_DEFAULT), "token_file": (TokenFile, None)}
    shared |= {"data_dir": (DataDir, None), "json": (Json, False)}

    def run(**options: Any) -> int:
        access = {name: options.pop(name) for name in shared}
        return _run(lambda session: command(session, **options), access)  # type: ignore[call-arg]

    only = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, only, annotation=annotation, default=default)
        for name, (annotation, default) in shared.items()
    ]
    parameters = [parameter.replace(kind=only) for parameter in own] + added
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run
