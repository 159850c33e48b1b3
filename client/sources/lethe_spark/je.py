"""`lethe_je`: the log of a Berkeley DB JE environment, a file a partition.

Nothing is locked and nothing written: JE may run beside it. What is read is a beginning of the log, as it was
when the frame was planned: the files that were there then, each up to the size that it had.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lethe_spark.je_columns import COLUMNS, batches
from lethe_spark.je_keys import KEYS, key_batches
from lethe_spark.options import Options
from spark.erase.errors import EnvironmentUnreadable, LogFileChanged, LogFileVanished, NotAnEnvironment
from spark.erase.reading.directory import Descriptors, identity_of
from spark.erase.reading.files import read_file
from spark.erase.reading.live_reading import MovingFile, stable_names
from spark.formats.je import log as je_log
from spark.formats.je.log import EntryType

VIEWS: Final = ("entries", "keys")
OPTIONS: Final = ("path", "view", "columns", "types", "files", "verify")
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


def asked(given: Mapping[str, str]) -> Asked:
    """What options ask for. Raises: OptionInvalid."""
    options = Options("lethe_je", given)
    options.only(OPTIONS)
    view = options.choice("view", VIEWS, default="entries")
    columns = options.words("columns", among=COLUMNS)
    types = options.words("types", among=[each.name for each in EntryType])
    if view == "keys" and (columns or types):
        raise options.refuse("view=keys has neither 'columns' nor 'types'; leave them out")
    files = options.words("files")
    for name in files or ():
        if not je_log.FILE_NAME.fullmatch(name):
            raise options.refuse(f"files names {name!r}; give names such as 00000002.jdb")
    return Asked(
        options.path("path", "the directory of the environment, where its *.jdb files are"),
        view,
        columns or tuple(COLUMNS),
        None if types is None else frozenset(int(EntryType[each]) for each in types),
        files,
        options.flag("verify", default=True),
    )


class JeSource(DataSource):
    """`lethe_je`: a row for each entry, or with `view=keys` for each place where a key can be read.

    Options: `path`; `view`: entries (default) or keys; `columns`, `types` (of entries), `files`: only these;
    `verify`: compare the checksum of every entry (default true).
    """

    @classmethod
    def name(cls) -> str:
        return "lethe_je"

    def schema(self) -> str:
        found = asked(self.options)
        if found.view == "keys":
            return ", ".join(f"{name} {kind}" for name, (kind, _) in KEYS.items())
        return ", ".join(f"{name} {COLUMNS[name][0]}" for name in found.columns)

    def reader(self, schema: Any) -> DataSourceReader:
        return JeReader(asked(self.options))


@dataclass(frozen=True)
class LogFilePart(InputPartition):
    """One file as it was when the frame was planned."""

    name: str
    inode: int
    size: int
    is_last: bool


class JeReader(DataSourceReader):
    """Reads one file a partition."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked

    def partitions(self) -> Sequence[InputPartition]:
        """The files that are there now.

        Raises: LogRefused: NotAnEnvironment and others.
        """
        directory = self._asked.directory
        names = stable_names(directory)
        wanted = names if self._asked.files is None else list(self._asked.files)
        lacking = sorted(set(wanted) - set(names))
        if lacking:
            raise NotAnEnvironment(f"{directory} has no file {lacking[0]}; it has {names[0]} to {names[-1]}")
        growing = names[-1:] if _has_header(directory / names[-1]) else names[-2:]
        return [self._part(name, is_last=name in growing) for name in names if name in wanted]

    def _part(self, name: str, *, is_last: bool) -> LogFilePart:
        try:
            status = os.stat(self._asked.directory / name, follow_symlinks=False)
        except FileNotFoundError as error:
            raise LogFileVanished(CLEANED, file=name) from error
        return LogFilePart(name, status.st_ino, status.st_size, is_last)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one file.

        Raises: LogRefused: naming file and offset.
        """
        if not isinstance(partition, LogFilePart):  # a frame without partitions gets one of Spark's own
            return
        wanted, descriptors = self._asked, Descriptors(1)
        try:
            file = _opened(wanted.directory, partition, descriptors)
            found = read_file(file, is_last=partition.is_last, verify=wanted.verify)
            if wanted.view == "keys":
                yield from key_batches(file, found, str(wanted.directory))
            else:
                yield from batches(found, str(wanted.directory), wanted.columns, types=wanted.types)
        finally:
            descriptors.close()


def _has_header(path: Path) -> bool:
    """Whether the last file has begun; until then JE may still write the end of the one before it."""
    descriptors = Descriptors(1)
    try:
        descriptor, _ = descriptors.of(path)
        return any(os.pread(descriptor, je_log.FILE_HEADER_BYTES, 0)[je_log.TYPE_AT :])
    except EnvironmentUnreadable as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise LogFileVanished(CLEANED, file=path.name) from error
        raise
    finally:
        descriptors.close()


def _opened(directory: Path, part: LogFilePart, descriptors: Descriptors) -> MovingFile:
    """The file of a partition, up to the size that it had; a device has another number on each machine."""
    path = directory / part.name
    try:
        descriptor, _ = descriptors.of(path)
    except EnvironmentUnreadable as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise LogFileVanished(CLEANED, file=part.name) from error
        raise
    now = identity_of(os.fstat(descriptor))
    if now.inode != part.inode:
        raise LogFileChanged("another file has its name since the frame was planned", file=part.name)
    if now.size < part.size or (now.size > part.size and not part.is_last):
        raise LogFileChanged(f"{part.size} bytes became {now.size}", file=part.name)
    return MovingFile(je_log.file_number(part.name), path, replace(now, size=part.size), descriptors)
