"""What `serve`, `worker` and `migrate` share: settings out of options and environment, and the end."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from app.cli.exits import Complaint, ExitCode
from app.cli.output import Output
from app.settings import Settings

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Default: LETHE_DATA_DIR, else lethe-data.")]
MetadataUrl = Annotated[
    str | None,
    typer.Option("--metadata-url", help="PostgreSQL; default: SQLite in the data directory."),
]
Label = Annotated[list[str] | None, typer.Option("--label", help="Of this runner. Repeatable.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")]


def run_process(
    name: str, process: Callable[[Settings], int], given: Mapping[str, Any], *, json: bool
) -> int:
    """Run the process to its end and return its exit code; options win over the environment.

    Args:
        given: setting to the option's value; None where the option was not given.
    """
    out = Output(json=json)
    try:
        settings = Settings(**{key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        advice = "Each is an option, or a variable with LETHE_ before its name."
        complaint = Complaint("SETTINGS_INVALID", "; ".join(faults), ExitCode.CONFIGURATION, advice)
        return out.complain(complaint)
    code = process(settings)
    out.document({"command": name, "exit_code": code})
    return code
