"""Packages that only some work needs, and whether they are installed here.

They are found, never imported: the compiler of the loops alone takes a second.
"""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of the distribution.

    Args:
        modules: what it brings, as they are imported; it is there when all of them are.
    """

    name: str
    modules: tuple[str, ...]

    @property
    def is_installed(self) -> bool:
        """Whether all of it can be imported."""
        return all(find_spec(module) is not None for module in self.modules)

    @property
    def command(self) -> str:
        """What installs it, for messages."""
        return f"pip install 'lethe-control-plane[{self.name}]'"


JE: Final = Extra("je", ("numba",))
SPARK: Final = Extra("spark", ("pandas", "pyspark"))
LDAP: Final = Extra("ldap", ("ldap3",))
