"""Which service a command talks to, and with which token.

Rules:
- an option goes before the environment, the environment before the profile in use;
- a token of a profile goes to the address of that profile and to no other.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from lethe_client import ConfigurationInvalid

from app.cli.shell.profiles import Profile, complete_profile, find_profile, load_profiles

URL_DEFAULT: Final = "http://127.0.0.1:8765"
TOKEN_FILE_MAX_BYTES: Final = 4096
TOKEN_VARIABLES: Final = ("LETHE_TOKEN", "LETHE_TOKEN_FILE")
PANEL: Final = "Service"

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help=f"Address of the service; else LETHE_URL, the profile's, {URL_DEFAULT}.",
        rich_help_panel=PANEL,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        help="File with the token; else LETHE_TOKEN, LETHE_TOKEN_FILE, the profile's.",
        rich_help_panel=PANEL,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="Data directory of a service on this machine: takes the token from DIR/admin.token.",
        rich_help_panel=PANEL,
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help="Profile of `lethe login`; else LETHE_PROFILE, the one in use.",
        autocompletion=complete_profile,
        rich_help_panel=PANEL,
    ),
]
OPTIONS: Final[dict[str, Any]] = {
    "url": Url,
    "token_file": TokenFile,
    "data_dir": DataDir,
    "profile": ProfileName,
}


@dataclass(frozen=True, slots=True)
class Access:
    """Where to, and the token; None where nobody gives one."""

    url: str
    token: str | None


def resolve(
    *, url: str | None, token_file: Path | None, data_dir: Path | None, profile: str | None
) -> Access:
    """Decide by the options, the environment and the profiles.

    Raises: ConfigurationInvalid: a file that is named cannot be used, or no profile has the name.
    """
    named = find_profile(profile) if profile else None
    given = url or (named.url if named else None) or os.environ.get("LETHE_URL")
    file = token_file or (data_dir / "admin.token" if data_dir else None)
    has_token = file is not None or named is not None or any(map(os.environ.get, TOKEN_VARIABLES))
    # A data directory is that of a service on this machine: no profile speaks for it.
    is_settled = data_dir is not None or (given is not None and has_token)
    fallback = named or (None if is_settled else _in_use())
    address = given or (fallback.url if fallback else URL_DEFAULT)
    return Access(address, _token(file, named, fallback, address))


def _in_use() -> Profile | None:
    """The profile of the environment, else the one that `lethe profile use` has chosen."""
    if name := os.environ.get("LETHE_PROFILE"):
        return find_profile(name)
    known = load_profiles()
    return known.profiles.get(known.current) if known.current else None


def _token(file: Path | None, named: Profile | None, fallback: Profile | None, address: str) -> str | None:
    if file is not None:
        return read_token(file)
    if named is None and (token := os.environ.get("LETHE_TOKEN")):
        return token
    if named is None and (place := os.environ.get("LETHE_TOKEN_FILE")):
        return read_token(Path(place))
    if fallback is None or _bare(fallback.url) != _bare(address):
        return None
    return fallback.token or read_token(Path(fallback.token_file or ""))


def _bare(url: str) -> str:
    return url.rstrip("/")


def read_token(path: Path) -> str:
    """The token in a file.

    Raises: ConfigurationInvalid: the file cannot be read, or holds none.
    """
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
