"""The environments of `tests/data/je`, which JE wrote; each is packed, with what is known of it.

They are read member by member: the Python of Debian 12 (3.11.2) has no filters for what a tar file may name.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

DATA = Path(__file__).parent / "data" / "je"


def packed_files(name: str) -> dict[str, bytes]:
    """What each file of an environment holds, by its path below it."""
    with tarfile.open(DATA / f"{name}.tar.xz") as packed:
        opened = {member.name.removeprefix(f"{name}/"): packed.extractfile(member) for member in packed}
        return {path: file.read() for path, file in opened.items() if file is not None}


def log_files(name: str) -> dict[str, bytes]:
    """The log files of an environment alone, in their order."""
    files = sorted(packed_files(name).items())
    return {path: held for path, held in files if Path(path).suffix == ".jdb" and "/" not in path}


def unpack(name: str, directory: Path) -> Path:
    """The log files of an environment in a new directory of their own."""
    return _written(log_files(name), directory)


def unpack_all(name: str, directory: Path) -> Path:
    """All files of an environment in a new directory of their own."""
    return _written(packed_files(name), directory)


def _written(files: dict[str, bytes], directory: Path) -> Path:
    directory.mkdir(parents=True)
    for path, held in files.items():
        (directory / path).parent.mkdir(exist_ok=True)
        (directory / path).write_bytes(held)
    return directory
