"""`lethe token`: who may do what."""

from typing import Annotated

import typer

from app.cli.shell.arguments import instant
from app.cli.shell.exits import ExitCode
from app.cli.shell.session import Session, on_service

app = typer.Typer(name="token", no_args_is_help=True, add_completion=False, help="Who may do what.")


@app.command("create")
@on_service
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="For people: whose it is.")],
    *,
    scope: Annotated[list[str] | None, typer.Option(help="Such as jobs:read. Repeatable.")] = None,
    role: Annotated[str | None, typer.Option(help="A bundle of scopes, instead of --scope.")] = None,
    store: Annotated[list[str] | None, typer.Option(help="Only for this store. Repeatable.")] = None,
    expires_in: Annotated[str | None, typer.Option(metavar="P90D", help="ISO 8601 duration.")] = None,
    expires_at: Annotated[str | None, typer.Option(metavar="TIME", help="RFC 3339, or a date.")] = None,
) -> int:
    """Make a token; its secret goes to stdout, this once.

    Example: lethe token create nightly --role operator --store shop
    """
    if bool(scope) == bool(role):
        raise typer.BadParameter("give one of them", param_hint="--scope / --role")
    made = session.client.tokens.create(
        name,
        scopes=scope or (),
        role=role,
        stores=store,
        expires_at=instant(expires_at, option="--expires-at"),
        expires_in=expires_in,
    )
    session.out.note(f"Token {made.id} ({name}); the secret is not shown again:")
    lost = f"Nobody has the secret; make another, and end this one: lethe token revoke {made.id}"
    session.out.secret(made.token or "", made.raw, when_lost=lost)
    return ExitCode.OK


@app.command("list")
@on_service
def list_tokens(session: Session) -> int:
    """List the tokens, without their secrets.

    Example: lethe token list
    """
    tokens = list(session.client.tokens.list())
    session.out.document({"items": [token.raw for token in tokens]})
    session.out.table(
        ["token", "name", "scopes", "stores", "expires", "revoked"],
        [
            [token.id, token.name, token.scopes, token.stores, token.expires_at, token.revoked_at]
            for token in tokens
        ],
    )
    return ExitCode.OK


@app.command("revoke")
@on_service
def revoke(
    session: Session,
    token: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="Such as tok_..., not the secret.")],
) -> int:
    """End a token at once.

    Example: lethe token revoke tok_01jdb5q6w3r8m2k4n7p9s0t1v2
    """
    revoked = session.client.tokens.revoke(token)
    session.out.document(revoked.raw if revoked else {"id": token, "revoked": True})
    session.out.say(f"Token {token} is revoked.")
    return ExitCode.OK
