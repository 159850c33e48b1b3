"""Where the files of a log lie: in the environment's directory, or in data directories below it.

A JE with `je.log.nDataDirectories` set to n keeps file N in one of `data001` to `data00n`, in that with the
number (N mod n) + 1; `je.lck` and Lethe's own file stay above them. Source: FileManager of JE 7.5.11.
"""

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from spark.formats.je import log as je_log
from spark.targets.files.beneath import list_beneath, stat_beneath
from spark.targets.files.medium import Medium, medium_of

FIRST: Final = "data001"
DATA_DIRECTORY: Final = re.compile(r"data[0-9]{3}")


class PlaceWrong(Exception):
    """The data directories are none that JE would take; `name` is one of them."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(detail)
        self.name, self.detail = name, detail


def data_directory(number: int, count: int) -> str:
    """The data directory of a file, of so many."""
    return f"data{number % count + 1:03d}"


def data_names(names: Iterable[str]) -> list[str]:
    """Those names that JE takes for data directories."""
    return sorted(name for name in names if DATA_DIRECTORY.fullmatch(name))


def files_below(directory: Path, names: Iterable[str]) -> dict[str, list[str]]:
    """The log files of each data directory; empty where none has any: then the log does not lie there.

    Args:
        names: what is in the environment's directory.
    Raises: PlaceWrong; OSError.
    """
    found = {name: _log_files(directory, name) for name in data_names(names)}
    if not any(found.values()):
        return {}
    wanted = [data_directory(number, len(found)) for number in range(len(found))]
    if list(found) != wanted:
        detail = f"there are {', '.join(found)}; JE wants {wanted[0]} to {wanted[-1]} without a gap"
        raise PlaceWrong(next(iter(found)), detail)
    for name, files in found.items():
        for file in files:
            place = data_directory(je_log.file_number(file), len(found))
            if file != je_log.RESTORE_MARKER_NAME and place != name:
                raise PlaceWrong(name, f"{file} lies in {name}/, where JE looks for it in {place}/")
    return found


def _log_files(directory: Path, name: str) -> list[str]:
    status = stat_beneath(directory / name)
    if stat.S_ISLNK(status.st_mode) and any(map(_is_log_file, _behind_link(directory / name))):
        raise PlaceWrong(name, f"{name} is a symbolic link, which is not followed: mount the disk there")
    if not stat.S_ISDIR(status.st_mode):
        return []
    return sorted(filter(_is_log_file, list_beneath(directory / name)))


def _behind_link(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _is_log_file(name: str) -> bool:
    return je_log.FILE_NAME.fullmatch(name) is not None


def log_folders(directory: Path) -> list[Path]:
    """The directories that hold the files of a log: the environment's own, or its data directories.

    What is wrong with them is said by whoever lists the files.
    """
    if not _is_directory(directory / FIRST):
        return [directory]
    try:
        names = os.listdir(directory)
    except OSError:
        return [directory]
    if any(map(_is_log_file, names)):
        return [directory]
    below = [directory / name for name in data_names(names)]
    return [each for each in below if _is_directory(each)] or [directory]


def log_path(directory: Path, number: int) -> Path:
    """The path of a log file, whether it is there or not."""
    name = je_log.file_name(number)
    # Nearly all logs lie in one directory: one look at its names is spared where the file is there.
    if os.path.lexists(directory / name):
        return directory / name
    folders = log_folders(directory)
    return folders[number % len(folders)] / name


def log_paths(directory: Path, names: Iterable[str]) -> list[Path]:
    """The paths of many log files; of the directories is asked once."""
    folders = log_folders(directory)
    return [folders[je_log.file_number(name) % len(folders)] / name for name in names]


def medium_of_log(directory: Path) -> Medium:
    """What an environment and the files of its log lie on; of several media the one to be careful with.

    Raises: FileNotFoundError, PermissionError.
    """
    places = dict.fromkeys([directory, *log_folders(directory)])
    media = list(dict.fromkeys(medium_of(place) for place in places))
    first = next((each for each in media if each.is_network), None)
    first = first or next((each for each in media if each.is_copy_on_write), media[0])
    notes = tuple(dict.fromkeys(note for each in media for note in each.notes))
    return replace(first, notes=notes)


def _is_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path, follow_symlinks=False).st_mode)
    except OSError:
        return False
