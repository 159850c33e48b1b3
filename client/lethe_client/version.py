"""The version of this library, as its pyproject.toml says it."""

from typing import Final

__version__: Final = "0.1.0"
