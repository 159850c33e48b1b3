"""What this is called where packages are installed, and its version."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

DISTRIBUTION: Final = "lethe-control-plane"


@cache
def installed_version() -> str:
    """The version that was installed when this process first asked: that of its code."""
    return version(DISTRIBUTION)


def version_on_disk() -> str | None:
    """The version that is installed now; None: none is."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return None
