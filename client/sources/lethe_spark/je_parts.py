"""What is asked of a log, and the files that it is read in."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql.datasource import InputPartition

PART_BYTES: Final = 64 * 2**20
"""A task of Spark costs as much as reading three files of 10 MB."""
CLEANED: Final = "JE has deleted it since the frame was planned, after it had moved what is live; read again"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be read of which log; `columns` and `types` are of the view `entries`."""

    directory: Path
    view: str
    columns: tuple[str, ...]
    types: frozenset[int] | None
    files: tuple[str, ...] | None
    verify: bool


@dataclass(frozen=True, slots=True)
class SeenFile:
    """A file as it was when the frame was planned; it may lie in a data directory."""

    path: Path
    inode: int
    size: int
    is_last: bool


@dataclass(frozen=True)
class LogPart(InputPartition):
    """Some files of a log, in their order."""

    files: tuple[SeenFile, ...]
