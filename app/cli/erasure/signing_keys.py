"""`lethe signing-key`: the keys that certificates and the audit chain are signed with."""

import typer

from app.cli.erasure.certificate import keys
from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service

app = typer.Typer(
    name="signing-key",
    no_args_is_help=True,
    add_completion=False,
    help="Keys that sign certificates.",
)
app.command("list")(keys)


@app.command("rotate")
@on_service
def rotate(session: Session) -> int:
    """Sign with a new key from now on. What the former one has signed stays valid.

    Example: lethe signing-key rotate
    """
    made = session.client.signing_keys.rotate()
    session.out.document(made.raw)
    session.out.say(f"{made.id} signs from now on.")
    session.out.note("Give it to whoever checks certificates: lethe signing-key list")
    return ExitCode.OK
