"""`lethe whoami`: what the token is and may do."""

import typer

from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service

app = typer.Typer(name="whoami", add_completion=False, help="What this token is and may do.")


@app.command("whoami")
@on_service
def whoami(session: Session) -> int:
    """The name, scopes, stores and end of the token that this command would send.

    Example: lethe whoami --profile production
    """
    found = session.client.fleet.whoami()
    session.out.document(found.raw)
    session.out.facts(
        {
            "name": found.name,
            "token": found.token_id,
            "scopes": found.scopes,
            "stores": "all" if found.stores is None else found.stores or "none",
            "expires": found.expires_at or "never",
            "service": session.client.url,
        }
    )
    return ExitCode.OK
