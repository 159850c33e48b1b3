"""Profiles: services and tokens by name, in one file of the user's own.

Rules:
- the file is written whole or not at all, and nobody but its owner may read it;
- a file that others may read or write is not used;
- a profile holds a token or the path of a file with one, never both.
"""

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from lethe_client import ConfigurationInvalid

FILE_MAX_BYTES: Final = 1024 * 1024
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True)
class Profile:
    """One service and the token for it, or the file that the token is in."""

    url: str
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None


@dataclass(frozen=True, slots=True)
class Profiles:
    """What the file holds; `current` is used where no profile is named."""

    current: str | None = None
    profiles: Mapping[str, Profile] = field(default_factory=dict)


def profiles_path() -> Path:
    """Where the profiles lie, by the XDG base directories."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path.home() / ".config"
    return base / "lethe" / "profiles.json"


def load_profiles() -> Profiles:
    """Read the profiles; none where there is no file.

    Raises: ConfigurationInvalid: others may read or write the file, or it cannot be used.
    """
    path = profiles_path()
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(FILE_MAX_BYTES)
    except FileNotFoundError:
        return Profiles()
    except OSError as error:
        raise ConfigurationInvalid(f"the profiles in {path} cannot be read: {error.strerror}") from error
    if mode & OTHERS:
        raise ConfigurationInvalid(f"others may read or write {path}, which holds tokens: chmod 600 {path}")
    try:
        return _profiles(json.loads(content))
    except (ValueError, TypeError, AttributeError, RecursionError):
        # Without the cause: it may quote the file, which holds tokens.
        raise ConfigurationInvalid(
            f"the profiles in {path} are damaged: move the file away, then log in again by lethe login"
        ) from None


def _profiles(document: Any) -> Profiles:
    """Read the file's document.

    Raises: ValueError, TypeError, AttributeError: it is none of ours.
    """
    found = {name: Profile(**fields) for name, fields in document["profiles"].items()}
    current = document.get("current")
    for name, each in found.items():
        texts = [each.url, each.token, each.token_file]
        whole = all(isinstance(text, str | None) for text in texts) and isinstance(each.url, str)
        if not whole or not NAME.fullmatch(name) or (each.token is None) == (each.token_file is None):
            raise ValueError("a profile has an address, and a token or the file of one")
    if current is not None and current not in found:
        raise ValueError("the profile in use is none of them")
    return Profiles(current, found)


def save_profiles(profiles: Profiles) -> Path:
    """Replace the file by this; 0600 from its first byte on.

    Raises: ConfigurationInvalid: it cannot be written.
    """
    path = profiles_path()
    text = json.dumps(asdict(profiles), indent=2) + "\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".profiles-", delete=False) as file:
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(path)
            except OSError:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise ConfigurationInvalid(f"the profiles cannot be written to {path}: {error.strerror}") from error
    return path


def find_profile(name: str) -> Profile:
    """The profile of a name.

    Raises: ConfigurationInvalid: none has it.
    """
    found = load_profiles().profiles.get(name)
    if found is None:
        raise ConfigurationInvalid(f"no profile is named {name!r}: lethe profile list")
    return found


def complete_profile(incomplete: str) -> list[str]:
    """Names of profiles for a shell's completion."""
    try:
        names = load_profiles().profiles
    except ConfigurationInvalid:
        return []
    return [name for name in names if name.startswith(incomplete)]
