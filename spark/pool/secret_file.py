"""The secret of a standalone cluster: from the file that settings name into one of the JVM's own.

Configuration travels as command-line arguments; this one goes by a file of properties beside them.
"""

import os
import re
from pathlib import Path
from typing import Final

from spark.pool.errors import SparkStartFailed
from spark.pool.master import STANDALONE
from spark.pool.options import SparkOptions

NAME: Final = "secret.properties"
USABLE: Final = re.compile(r"[A-Za-z0-9+/=_.-]{16,512}")
"""What a file of properties takes as it stands."""
BYTES_MAX: Final = 4_096


def needs_secret(options: SparkOptions) -> bool:
    """Whether the cluster brings none by itself."""
    return options.encrypted and options.master_url.startswith(STANDALONE)


def write_secret(options: SparkOptions, directory: Path) -> Path | None:
    """Write the file of properties; None: no secret is needed.

    Args:
        directory: of this JVM alone; the file goes with it.
    Raises: SparkStartFailed: NO_SECRET.
    """
    if not needs_secret(options):
        return None
    secret = _read(options.secret_file)
    place = directory / NAME
    with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(f"spark.authenticate.secret {secret}\n")
    return place


def _read(place: Path | None) -> str:
    if place is None:
        raise SparkStartFailed(
            "NO_SECRET",
            "driver and executors would carry passwords over the network in the open: let "
            "LETHE_SPARK__SECRET_FILE name the secret of the master and its workers, or say "
            "LETHE_SPARK__ENCRYPTION=false where the network is trusted",
        )
    try:
        # Without O_NONBLOCK a pipe of this name would hold the start beyond its time.
        with open(os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            secret = (file.read(BYTES_MAX) or b"").decode("ascii").strip()
    except OSError as error:
        raise SparkStartFailed("NO_SECRET", f"{place} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        secret = ""
    if USABLE.fullmatch(secret) is None:
        raise SparkStartFailed(
            "NO_SECRET",
            f"{place} holds no usable secret: 16 to 512 letters, digits and + / = _ . -, "
            "as `openssl rand -hex 32` writes them",
        )
    return secret
