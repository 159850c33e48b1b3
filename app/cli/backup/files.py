"""Files of hooks and commands: the list of what to copy, and the session that a hook left for the next."""

import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from lethe_client import BackupFile, ConfigurationInvalid

SESSION_FILE_MAX_BYTES: Final = 1_048_576
LINES: Final = "{files}"
NULS: Final = "{files0}"


def write_whole(path: Path, content: bytes) -> None:
    """Put a file there with all of its content, durably, or leave what was there.

    Raises: ConfigurationInvalid: it cannot be written.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with ExitStack() as undo:
            undo.callback(Path(name).unlink, missing_ok=True)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
            undo.pop_all()
        _sync_directory(path.parent)
    except OSError as error:
        raise ConfigurationInvalid(f"{path} cannot be written: {error.strerror}") from error


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def list_of(files: Sequence[BackupFile], separator: str) -> bytes:
    """The paths of files, each ended by the separator, byte for byte as the file system has them.

    Raises: ConfigurationInvalid: a path holds the separator.
    """
    wrong = next((file.path for file in files if separator in file.path), None)
    if wrong is not None:
        raise ConfigurationInvalid(f"{wrong!r} cannot stand in a list of lines; use {NULS}")
    return b"".join(os.fsencode(file.path) + separator.encode() for file in files)


def with_lists(command: Sequence[str], files: Sequence[BackupFile], directory: Path) -> list[str]:
    """The command with `{files}` and `{files0}` replaced by paths of lists, written where they are used."""
    lists = {LINES: ("files", "\n"), NULS: ("files0", "\0")}
    replaced = list(command)
    for name, (file, separator) in lists.items():
        if any(name in word for word in command):
            path = directory / file
            write_whole(path, list_of(files, separator))
            replaced = [word.replace(name, str(path)) for word in replaced]
    return replaced


@dataclass(frozen=True, slots=True)
class Kept:
    """What a session file holds: what was asked for and under which key, before it is asked.

    Attributes:
        session_id: None until the answer came: the same key asks again.
    """

    store: str
    key: str
    request: dict[str, Any]
    session_id: str | None = None


def read_kept(path: Path) -> Kept | None:
    """The session that a hook left; None where none did.

    Raises: ConfigurationInvalid: the file is something else.
    """
    try:
        with path.open("rb") as file:
            content = file.read(SESSION_FILE_MAX_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationInvalid(f"{path} cannot be read: {error.strerror}") from error
    try:
        found = json.loads(content)
        kept = Kept(**found)
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigurationInvalid(f"{path} holds no backup session") from error
    if not (isinstance(kept.store, str) and isinstance(kept.key, str) and isinstance(kept.request, dict)):
        raise ConfigurationInvalid(f"{path} holds no backup session")
    return kept


def write_kept(path: Path, kept: Kept) -> None:
    """Leave a session for the next hook."""
    write_whole(path, json.dumps(asdict(kept), indent=2).encode() + b"\n")
