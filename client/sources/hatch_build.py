"""The wheel carries the readers of `spark`; an installation for development finds them in their source."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CARRIED = (
    "spark/__init__.py",
    "spark/erase/__init__.py",
    "spark/erase/errors.py",
    "spark/erase/native",
    "spark/erase/reading",
    "spark/formats",
    "spark/targets",
    "spark/worker.py",
)


class Carrying(BuildHookInterface):  # type: ignore[misc]
    """Adds them to the wheel: a copy in a development environment would hide the source."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            root = Path(self.root).parents[1]
            build_data["force_include"] |= {str(root / each): each for each in CARRIED}
