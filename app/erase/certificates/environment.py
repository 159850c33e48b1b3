"""What a certificate says of the directory itself, as it is when the certificate is issued.

Nothing is believed of a directory that is not the one that was erased: the store may name another one by
now, or the certificate may be issued on a machine that has another one by that path.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from app.kit.instants import instant_text
from app.settings import Settings
from app.stores.errors import StoreUrlRefused
from app.stores.rows import Store
from app.stores.targets import environment_directory
from spark.targets.files.log_place import log_folders, log_paths, medium_of_log

OTHER_FILES_MAX: Final = 200
OTHER_SUFFIXES: Final = (".csv", ".info", ".del", ".bad", ".lck", ".properties")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a certificate shows of the directory, and what it found there.

    Attributes:
        other_files: beside the log.
        replaced: log files that are others than those that were proved: the log was restored since.
    """

    shown: Mapping[str, Any]
    other_files: Sequence[str] = ()
    replaced: Sequence[str] = ()


def look_at_environment(
    store: Store | None,
    path: str | None,
    files: Sequence[Mapping[str, Any]],
    settings: Settings,
    *,
    now: datetime,
) -> Seen:
    """Look at the directory of a cycle, if it is to be seen from here.

    Args:
        store: as it is now; None: it has been removed.
        path: that the cycle was begun for.
        files: of the cycle, as its certificate shows them.
    """
    devices = {file["identity"]["device"] for file in files if file["identity"]}
    shown: dict[str, Any] = {"path": path, "looked_at": instant_text(now), "medium": None}
    if path is None or store is None or store.path != path:
        why = "the store has been removed" if store is None else "the store names another directory by now"
        return Seen(shown | {"unreadable": why})
    try:
        directory = environment_directory(store, settings)
        status = directory.stat()
        found = {folder.stat().st_dev for folder in log_folders(directory)}
        medium = medium_of_log(directory)
        others, replaced = _other_files(directory), _replaced(directory, files)
    except StoreUrlRefused as error:
        return Seen(shown | {"unreadable": error.detail})
    except OSError as error:
        return Seen(shown | {"unreadable": str(error.strerror)})
    if devices and not devices <= found:
        return Seen(shown | {"unreadable": "another file system than the one that the cycle's files were on"})
    shown |= {
        "device": status.st_dev,
        "inode": str(status.st_ino),
        "medium": {
            "file_system": medium.file_system,
            "is_copy_on_write": medium.is_copy_on_write,
            "notes": list(medium.notes),
        },
    }
    return Seen(shown, others, replaced)


def _replaced(directory: Path, files: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those that were proved and are another file by now; one that is gone was JE's to clean."""
    proved = [file for file in files if file["proved"] and file["identity"]]
    paths = log_paths(directory, [file["name"] for file in proved])
    return [file["name"] for file, path in zip(proved, paths, strict=True) if _is_another(path, file)]


def _is_another(path: Path, file: Mapping[str, Any]) -> bool:
    try:
        status = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    known = file["identity"]
    return (status.st_ino, status.st_size) != (int(known["inode"]), known["size"])


def _other_files(directory: Path) -> list[str]:
    """Files that are no log and that JE or somebody else may have written data into."""
    # A name need not be UTF-8, but a certificate is.
    found = list(filter(_may_hold_data, os.listdir(directory)))
    for folder in log_folders(directory):
        if folder != directory:
            found += [os.path.join(folder.name, name) for name in os.listdir(folder) if _may_hold_data(name)]
    names = sorted(os.fsencode(name).decode(errors="replace") for name in found)
    return names[:OTHER_FILES_MAX]


def _may_hold_data(name: str) -> bool:
    return ".jdb" not in name and (name.startswith("je.") or name.endswith(OTHER_SUFFIXES))
