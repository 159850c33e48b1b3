"""The secret of driver and executors: from the file that settings name to where Spark takes it from.

Configuration travels as command-line arguments. For a standalone cluster the secret goes by a file of
properties beside them; on Kubernetes Spark reads the named file itself, here and in each pod.
"""

import os
import re
from pathlib import Path
from typing import Final

from spark.pool.errors import SparkStartFailed
from spark.pool.master import KUBERNETES, STANDALONE
from spark.pool.options import SparkOptions

NAME: Final = "secret.properties"
USABLE: Final = re.compile(r"[A-Za-z0-9+/=_.-]{16,512}")
"""What a file of properties takes as it stands."""
BYTES_MAX: Final = 4_096
MOUNTED: Final = "..data"
IN_PODS: Final = (
    "Spark would write its secret into each pod's specification, where whoever may look at pods reads it: "
    "keep one in a secret of Kubernetes, let LETHE_SPARK__SECRET_NAME name that and LETHE_SPARK__SECRET_FILE "
    "its file as it is mounted here, or say LETHE_SPARK__ENCRYPTION=false where the network is trusted"
)


def needs_secret(options: SparkOptions) -> bool:
    """Whether the cluster brings none by itself."""
    return options.encrypted and options.master_url.startswith((STANDALONE, KUBERNETES))


def write_secret(options: SparkOptions, directory: Path) -> Path | None:
    """Write the file of properties; None: no secret is needed, or Spark reads its file itself.

    Args:
        directory: of this JVM alone; the file goes with it.
    Raises: SparkStartFailed: NO_SECRET.
    """
    if not needs_secret(options):
        return None
    if options.is_kubernetes:
        _check_mounted(options)
        return None
    secret = _read(options.secret_file)
    place = directory / NAME
    with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(f"spark.authenticate.secret {secret}\n")
    return place


def _check_mounted(options: SparkOptions) -> None:
    if options.secret_file is None or options.secret_name is None:
        raise SparkStartFailed("NO_SECRET", IN_PODS)
    if options.secret_file.parent == options.secret_file.parent.parent:
        raise SparkStartFailed("NO_SECRET", f"{options.secret_file} lies in /, where nothing can be mounted")
    _read(options.secret_file)
    other = _other_than_mounted(options.secret_file)
    if other is not None:
        raise SparkStartFailed(
            "NO_SECRET",
            f"{options.secret_file.parent} holds {other} too, and in pods the secret lies over all of it:"
            " mount the secret in a folder of its own, and let LETHE_SPARK__SECRET_FILE name the file there",
        )


def _other_than_mounted(place: Path) -> str | None:
    """The name of something in the secret's folder that no mount of it has brought; None: there is nothing.

    What a kubelet mounts are links to `..data`, which is one, to a folder whose name begins so, too.
    """
    try:
        for each in place.parent.iterdir():
            is_key = each.is_symlink() and each.readlink().parts[0] == MOUNTED
            if each.name != place.name and not each.name.startswith("..") and not is_key:
                return each.name
    except OSError as error:
        raise SparkStartFailed("NO_SECRET", f"{place.parent} cannot be read: {error.strerror}") from error
    return None


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
