"""`lethe parameter`: the parameters of all and of one store."""

from typing import Annotated, Any

import typer
from lethe_client import Parameter

from app.cli.shell.arguments import scalar
from app.cli.shell.exits import ExitCode
from app.cli.shell.output import cell
from app.cli.shell.session import Session, on_service

app = typer.Typer(
    name="parameter",
    no_args_is_help=True,
    add_completion=False,
    help="Parameters of all stores or of one, such as purge.retention.minutes.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Such as purge.retention.minutes, or an alias.")]
Store = Annotated[str | None, typer.Option("--store", help="Of this store; of all, if not given.")]


@app.command("list")
@on_service
def list_parameters(session: Session, *, store: Store = None) -> int:
    """List the parameters with the values in effect and where these come from.

    Example: lethe parameter list --store shop
    """
    parameters = list(session.client.parameters.list(store=store))
    session.out.document({"items": [parameter.raw for parameter in parameters]})
    session.out.table(
        ["parameter", "value", "source", "default", "unit", "description"],
        [
            [each.name, cell(each.value), each.source, cell(each.default), each.unit, each.description]
            for each in parameters
        ],
    )
    return ExitCode.OK


@app.command("set")
@on_service
def set_parameter(
    session: Session,
    name: Name,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="In the parameter's own unit.")],
    *,
    store: Store = None,
) -> int:
    """Give a parameter a value.

    Example: lethe parameter set purge.retention.minutes 7200 --store shop
    """
    current = session.client.parameters.get(name, store=store)
    changed = session.client.parameters.set(current, _typed(value, current.type))
    _show(session, changed)
    return ExitCode.OK


@app.command("unset")
@on_service
def unset(session: Session, name: Name, *, store: Store = None) -> int:
    """Take a value away; what lies beneath it takes effect again.

    Example: lethe parameter unset purge.retention.minutes --store shop
    """
    session.client.parameters.unset(session.client.parameters.get(name, store=store))
    _show(session, session.client.parameters.get(name, store=store))
    return ExitCode.OK


def _typed(text: str, kind: str) -> Any:
    """Turn numbers and truth values into JSON's; anything else goes as text, and the service judges it."""
    return text if kind.upper() in ("STRING", "TEXT", "DURATION") else scalar(text)


def _show(session: Session, parameter: Parameter) -> None:
    session.out.document(parameter.raw)
    unit = f" {parameter.unit}" if parameter.unit else ""
    session.out.say(f"{parameter.name} = {cell(parameter.value)}{unit} ({parameter.source})")
