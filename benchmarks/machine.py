"""What a figure was measured on: processor, memory, kernel, and the versions of Lethe's parts and peers."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

LIBRARIES: Final = ("pyspark", "psycopg", "PyMySQL", "pyarrow", "numba")
# A program and how it is asked for its version.
PEERS: Final = (
    ("postgres", "--version"),
    ("mariadbd", "--version"),
    ("pt-archiver", "--version"),
    ("slon", "-v"),
    ("java", "-version"),
)
PLACES: Final = "/usr/sbin:/usr/local/sbin:/usr/lib/postgresql/15/bin"
ASK_MAX_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine; memory in GiB."""

    processor: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    versions: tuple[str, ...]

    def line(self) -> str:
        """For the page."""
        parts = (
            f"{self.cores} cores of {self.processor}, {self.memory_gib:g} GiB",
            f"Linux {self.kernel}, Python {self.python}",
            *self.versions,
        )
        return "; ".join(parts) + "."


def this_machine() -> Machine:
    """The one that this process runs on."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        _processor(),
        len(os.sched_getaffinity(0)),
        round(pages / 2**30, 1),
        platform.release(),
        platform.python_version(),
        (*(f"{name} {version(name)}" for name in LIBRARIES), *_peers()),
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _peers() -> Iterator[str]:
    """What each peer that is installed says of itself, one line each."""
    path = os.pathsep.join((*os.get_exec_path(), PLACES))
    for name, option in PEERS:
        program = shutil.which(name, path=path)
        if program is None:
            continue
        asked = subprocess.run(
            [program, option], capture_output=True, text=True, check=False, timeout=ASK_MAX_S
        )
        said = (asked.stdout + asked.stderr).strip().splitlines()
        if said:
            yield said[0].replace(program, name).strip()
