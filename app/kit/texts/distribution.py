"""What this is called where packages are installed, and its version."""

from functools import cache
from importlib.metadata import version
from typing import Final

DISTRIBUTION: Final = "lethe-control-plane"


@cache
def installed_version() -> str:
    """The version that is installed."""
    return version(DISTRIBUTION)
