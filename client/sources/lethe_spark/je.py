"""`lethe_je`: the log of a Berkeley DB JE environment, some files a partition.

Nothing is locked and nothing written: JE may run beside it. What is read is a beginning of the log, as it was
when the frame was planned: the files that were there then, each up to the size that it had.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lethe_spark.je_parts import CLEANED, PART_BYTES, Asked, LogPart, SeenFile
from lethe_spark.je_schema import ENTRIES, KEYS, ddl
from lethe_spark.options import Options
from lethe_spark.parts import in_parts
from spark.erase.errors import EnvironmentUnreadable, LogFileVanished, NotAnEnvironment
from spark.erase.reading.directory import Descriptors, stable_names
from spark.formats.je import log as je_log
from spark.formats.je.log import EntryType
from spark.targets.files.log_place import log_paths

VIEWS: Final = ("entries", "keys")
OPTIONS: Final = ("path", "view", "columns", "types", "files", "verify")


def asked(given: Mapping[str, str]) -> Asked:
    """What options ask for. Raises: OptionInvalid."""
    options = Options("lethe_je", given)
    options.only(OPTIONS)
    view = options.choice("view", VIEWS, default="entries")
    columns = options.words("columns", among=ENTRIES)
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
        columns or tuple(ENTRIES),
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
            return ddl(KEYS)
        return ddl({name: ENTRIES[name] for name in found.columns})

    def reader(self, schema: Any) -> DataSourceReader:
        return JeReader(asked(self.options))


class JeReader(DataSourceReader):
    """Reads the files of a partition, one after the other."""

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
        paths = log_paths(directory, names)
        growing = paths[-1:] if _has_header(paths[-1]) else paths[-2:]
        files = [_seen(path, is_last=path in growing) for path in paths if path.name in wanted]
        return [LogPart(part) for part in in_parts(files, lambda file: file.size, bytes_most=PART_BYTES)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of some files.

        Raises: LogRefused: naming file and offset.
        """
        if not isinstance(partition, LogPart):  # a frame without partitions gets one of Spark's own
            return
        # What reads wants a compiler, whose import costs a second: processes that only plan do without.
        from lethe_spark.je_reading import read_file_of

        for file in partition.files:
            yield from read_file_of(self._asked, file)


def _seen(path: Path, *, is_last: bool) -> SeenFile:
    try:
        status = os.stat(path, follow_symlinks=False)
    except FileNotFoundError as error:
        raise LogFileVanished(CLEANED, file=path.name) from error
    return SeenFile(path, status.st_ino, status.st_size, is_last)


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
