"""`lethe secret`: where passwords and tokens lie, and who may use them."""

from typing import Annotated, Any

import typer
from lethe_client.secrets import Secret

from app.cli.shell.arguments import pairs
from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service

app = typer.Typer(
    name="secret",
    no_args_is_help=True,
    add_completion=False,
    help="Where passwords and tokens lie, and who may use them.",
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Stores name it secret:NAME.")]
Reference = "env:LETHE_SECRET_NAME|file:PATH|exec:NAME|vault:MOUNT/PATH#FIELD"
Hosts = Annotated[
    list[str] | None,
    typer.Option("--host", metavar="HOST[:PORT]", help="Who it may be shown to. Repeatable."),
]
Stores = Annotated[list[str] | None, typer.Option("--store", help="A store that may use it. Repeatable.")]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME=VALUE", help="Stores with all of these may use it. Repeatable."),
]
Loopback = Annotated[
    bool | None,
    typer.Option(
        "--clear-text-on-loopback/--no-clear-text-on-loopback",
        help="It may go in clear text on the service's own machine.",
    ),
]


@app.command("add")
@on_service
def add(
    session: Session,
    name: Name,
    *,
    reference: Annotated[str, typer.Option(metavar=Reference, help="Where it lies.")],
    host: Hosts = None,
    store: Stores = None,
    label: Labels = None,
    clear_text_on_loopback: Loopback = None,
) -> int:
    """Register a secret by the place where it lies. Its value never leaves the service's machine.

    Example: lethe secret add shop --reference env:SHOP_PASSWORD --host db.example --store shop
    """
    made = session.client.secrets.create(
        name,
        reference,
        hosts=host or (),
        stores=store or (),
        labels=pairs(label, option="--label"),
        clear_text_on_loopback=bool(clear_text_on_loopback),
    )
    return _told(session, made, f"Secret {name} is registered: name it secret:{name}.")


@app.command("list")
@on_service
def list_secrets(session: Session) -> int:
    """List the secrets, without their values.

    Example: lethe secret list
    """
    found = list(session.client.secrets.list())
    session.out.document({"items": [secret.raw for secret in found]})
    session.out.table(
        ["secret", "reference", "stores", "labels", "hosts", "problem"],
        [
            [secret.name, secret.reference, secret.stores, _shown(secret), secret.hosts, secret.problem]
            for secret in found
        ],
    )
    return ExitCode.OK


@app.command("show")
@on_service
def show(session: Session, name: Name) -> int:
    """Show a secret, without its value, and whether it can be read now.

    Example: lethe secret show shop
    """
    secret = session.client.secrets.get(name)
    session.out.document(secret.raw)
    session.out.facts(
        {
            "secret": secret.name,
            "reference": secret.reference,
            "stores": secret.stores,
            "labels": _shown(secret),
            "hosts": secret.hosts,
            "clear text on loopback": secret.clear_text_on_loopback,
            "problem": secret.problem,
        }
    )
    return ExitCode.OK


@app.command("update")
@on_service
def update(
    session: Session,
    name: Name,
    *,
    reference: Annotated[str | None, typer.Option(metavar=Reference, help="Where it lies now.")] = None,
    host: Hosts = None,
    store: Stores = None,
    label: Labels = None,
    clear_text_on_loopback: Loopback = None,
) -> int:
    """Change what is named here; a list replaces the one before. The next use goes by it.

    Example: lethe secret update shop --host db2.example
    """
    changes: dict[str, Any] = {
        "reference": reference,
        "hosts": host or None,
        "stores": store or None,
        "labels": pairs(label, option="--label") or None,
        "clear_text_on_loopback": clear_text_on_loopback,
    }
    changes = {field: value for field, value in changes.items() if value is not None}
    if not changes:
        raise typer.BadParameter("name what changes", param_hint="--reference / --host / --store / --label")
    changed = session.client.secrets.update(session.client.secrets.get(name), changes)
    return _told(session, changed, f"Secret {name} is changed.")


@app.command("remove")
@on_service
def remove(session: Session, name: Name) -> int:
    """Forget a secret that nobody names; its file or variable stays as it is.

    Example: lethe secret remove shop
    """
    session.client.secrets.remove(session.client.secrets.get(name))
    session.out.document({"name": name, "removed": True})
    session.out.say(f"Secret {name} is removed.")
    return ExitCode.OK


def _told(session: Session, secret: Secret, line: str) -> int:
    session.out.document(secret.raw)
    session.out.say(line)
    if secret.problem:
        session.out.note(f"It cannot be read now: {secret.problem}")
    return ExitCode.OK


def _shown(secret: Secret) -> str:
    return ", ".join(f"{name}={value}" for name, value in secret.labels.items())
