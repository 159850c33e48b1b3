"""What every command that talks to the service shares: its options, its client, and the end of its errors."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer
from lethe_client import TERMINAL, Job, Lethe, LetheError, RetryPolicy
from typer.models import ArgumentInfo

from app.cli.shell.access import OPTIONS, PANEL, resolve
from app.cli.shell.complaints import complaint
from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.field_options import Shown, shown_options
from app.cli.shell.output import Output

# A script that finds no service wants to know soon; waits are patient all the same.
RETRIES: Final = RetryPolicy(attempts=4)
EMPTY: Final = "it is empty; is a variable of the shell not set?"
P = ParamSpec("P")
Refused = Callable[[Output, Complaint], int]

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


def _run(command: Callable[[Session], int], access: dict[str, Any], refused: Refused, options: Shown) -> int:
    out = Output(json=access["json"])
    try:
        found = resolve(**{name: access[name] for name in OPTIONS})
        with Lethe(found.url, found.token, retries=RETRIES) as client:
            return command(Session(client, out, access["data_dir"]))
    except Interrupted as interrupted:
        job = interrupted.job
        going = "has ended" if job.state in TERMINAL else "goes on without us"
        out.note(f"Job {job.id} {going}. Watch it again: lethe job watch {job.id}")
        out.note(f"Stop it: lethe job pause {job.id}, or: lethe job abort {job.id}")
        out.document(job.raw)
        return ExitCode.INTERRUPTED
    except LetheError as error:
        return refused(out, complaint(error, options=options))


def _names(parameter: inspect.Parameter) -> str:
    """The metavar of an argument that is one name. Keys have none: they may be empty, as words of a list."""
    for each in getattr(parameter.annotation, "__metadata__", ()):
        if isinstance(each, ArgumentInfo):
            return each.metavar or ""
    return ""


def on_service(
    command: Callable[Concatenate[Session, P], int], *, refused: Refused = Output.complain
) -> Callable[..., int]:
    """Turn `(session, *, own options) -> exit code` into what typer takes: own options and the service's.

    Args:
        refused: shows that the service cannot be asked or has refused, and returns the exit code.
    """
    signature = inspect.signature(command, eval_str=True)
    _session, *own = signature.parameters.values()
    shared: dict[str, tuple[Any, Any]] = {name: (option, None) for name, option in OPTIONS.items()}
    shared |= {"json": (Json, False)}

    shown = shown_options(own)

    names = {parameter.name: metavar for parameter in own if (metavar := _names(parameter))}

    def run(**options: Any) -> int:
        for name, metavar in names.items():
            if options[name] == "":
                raise typer.BadParameter(EMPTY, param_hint=metavar)
        access = {name: options.pop(name) for name in shared}
        return _run(lambda session: command(session, **options), access, refused, shown)  # type: ignore[call-arg]

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
