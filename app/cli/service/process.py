"""What `serve`, `worker` and `migrate` share: settings out of options and environment, and the end."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from app.cli.shell.exits import Complaint, ExitCode
from app.cli.shell.output import Output
from app.settings import Settings

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Default: LETHE_DATA_DIR, else lethe-data.")]
MetadataUrl = Annotated[
    str | None,
    typer.Option("--metadata-url", help="PostgreSQL; default: SQLite in the data directory."),
]
Label = Annotated[list[str] | None, typer.Option("--label", help="Of this runner. Repeatable.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")]

NO_JSON: Final = "a variable that holds JSON holds none"
JSON_ADVICE: Final = (
    """Such are LETHE_SPARK__CONF='{"spark.name": "value"}' and """
    """LETHE_SPARK__JAVA_OPTIONS='["-Dname=value"]'."""
)


def run_process(
    name: str,
    process: Callable[[Settings], int],
    given: Mapping[str, Any],
    *,
    json: bool,
    has_document: bool = False,
) -> int:
    """Run the process to its end and return its exit code; options win over the environment.

    Args:
        given: setting to the option's value; None where the option was not given.
        has_document: the process prints the document of `--json` itself.
    """
    out = Output(json=json)
    try:
        settings = Settings(**{key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        advice = "Each is an option, or a variable with LETHE_ before its name, and __ for a dot."
        complaint = Complaint("SETTINGS_INVALID", "; ".join(faults), ExitCode.CONFIGURATION, advice)
        return out.complain(complaint)
    except SettingsError:  # what it says names neither the variable nor the fault
        complaint = Complaint("SETTINGS_INVALID", NO_JSON, ExitCode.CONFIGURATION, JSON_ADVICE)
        return out.complain(complaint)
    code = process(settings)
    if not has_document:
        out.document({"command": name, "exit_code": code})
    return code
