"""Address and token from the environment."""

import os
from pathlib import Path
from typing import Final

from lethe_client.errors import ConfigurationInvalid

TOKEN_FILE_MAX_BYTES: Final = 4096


def from_environment() -> tuple[str, str | None]:
    """LETHE_URL, and LETHE_TOKEN or what the file of LETHE_TOKEN_FILE holds; None: neither is set.

    Raises: ConfigurationInvalid: LETHE_URL is not set, or the file cannot be read.
    """
    url = os.environ.get("LETHE_URL")
    if not url:
        raise ConfigurationInvalid(
            "LETHE_URL is not set: the address of the service, such as https://lethe.example"
        )
    if token := os.environ.get("LETHE_TOKEN"):
        return url, token
    named = os.environ.get("LETHE_TOKEN_FILE")
    if not named:
        return url, None
    try:
        with Path(named).open("rb") as file:
            return url, file.read(TOKEN_FILE_MAX_BYTES).decode("ascii").strip()
    except OSError as error:
        raise ConfigurationInvalid(f"the token file {named} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigurationInvalid(f"the file {named} holds no token") from None
