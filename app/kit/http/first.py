"""One process of several that are a service: where the first one hears the others, and what all share."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.kit.shared_rates import SharedTable

SOCKET: Final = "first.sock"


@dataclass(frozen=True, slots=True)
class FirstDoor:
    """That socket, however long the name of its folder is.

    Attributes:
        folder: a descriptor of the data directory.
    """

    folder: int

    @classmethod
    def of(cls, data_dir: Path) -> "FirstDoor":
        """In a data directory."""
        return cls(os.open(data_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    @property
    def path(self) -> str:
        """As this process may name it: a socket's own name takes a hundred characters at most."""
        return f"/proc/self/fd/{self.folder}/{SOCKET}"


@dataclass(frozen=True, slots=True)
class Part:
    """What one process of several that are a service has of the others.

    Attributes:
        number: of a process that answers the API alone; None: the first one, or the only one.
        table: buckets of limits that all share; None: it is the only process.
        first: where the first one hears this one.
    """

    number: int | None = None
    table: SharedTable | None = None
    first: FirstDoor | None = None

    def owner(self, instance_id: str) -> str:
        """Who works on a request, as rows name it: another process has another name, a later one the same."""
        return instance_id if self.number is None else f"{instance_id}.{self.number}"


ALONE: Final = Part()
