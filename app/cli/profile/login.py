"""`lethe login`: keep a service's address and token under a name, once the service has accepted them."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer
from lethe_client import ConfigurationInvalid, Lethe, LetheError, WhoAmI

from app.cli.shell.access import TOKEN_FILE_MAX_BYTES, URL_DEFAULT, read_token
from app.cli.shell.complaints import complaint
from app.cli.shell.exits import ExitCode
from app.cli.shell.output import Output
from app.cli.shell.profiles import NAME, Profile, complete_profile, load_profiles, save_profiles
from app.cli.shell.session import RETRIES, Json

app = typer.Typer(name="login", add_completion=False, help="Keep a service's address and token under a name.")
STDIN: Final = Path("-")
DEFAULT: Final = "default"
NOBODY_TO_ASK: Final = (
    "there is no terminal to ask for the token at: give --token-file FILE, or --token-file - where standard"
    " input has it"
)


@app.command("login")
def login(
    url: Annotated[str, typer.Argument(metavar="[URL]", help="Address of the service.")] = URL_DEFAULT,
    *,
    profile: Annotated[
        str,
        typer.Option(envvar="LETHE_PROFILE", help="Name for it.", autocompletion=complete_profile),
    ] = DEFAULT,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token, read at each use; - reads the token from standard input."),
    ] = None,
    use: Annotated[bool, typer.Option("--use/--no-use", help="Use this profile from now on.")] = True,
    json: Json = False,
) -> int:
    """Ask the service who the token is, then keep both in the profiles. Without --token-file it asks for one.

    Example: lethe login https://lethe.example:8765 --profile production
    Example: lethe login --profile here --token-file lethe-data/admin.token
    """
    out = Output(json=json)
    if not NAME.fullmatch(profile):
        raise typer.BadParameter("letters, digits, _ . and -, 63 at most", param_hint="--profile")
    try:
        made = _made(url, token_file)
        found = _whoami(made)
        known = load_profiles()
        kept = dict(known.profiles) | {profile: made}
        current = profile if use else known.current
        path = save_profiles(replace(known, current=current, profiles=kept))
    except LetheError as error:
        return out.complain(complaint(error))
    out.document({"profile": profile, "url": url, "token": found.raw, "current": current, "file": str(path)})
    out.say(f"Profile {profile}: {url} as {found.name}, kept in {path}.")
    return ExitCode.OK


def _made(url: str, token_file: Path | None) -> Profile:
    if token_file is None:
        if not _has_terminal():
            raise ConfigurationInvalid(NOBODY_TO_ASK)
        return Profile(url, token=typer.prompt("Token", hide_input=True, err=True).strip())
    if token_file != STDIN:
        return Profile(url, token_file=str(token_file.absolute()))
    token = sys.stdin.read(TOKEN_FILE_MAX_BYTES).strip()
    if not token:
        raise ConfigurationInvalid("standard input holds no token")
    return Profile(url, token=token)


def _has_terminal() -> bool:
    """Whether somebody can be asked: at the terminal of the process, wherever its input comes from."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return sys.stdin.isatty()
    return True


def _whoami(profile: Profile) -> WhoAmI:
    """Have the service say who it is.

    Raises: LetheError: it is not there, or does not take the token.
    """
    token = profile.token or read_token(Path(profile.token_file or ""))
    with Lethe(profile.url, token, retries=RETRIES) as client:
        return client.fleet.whoami()
