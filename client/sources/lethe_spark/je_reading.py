"""One file of a log into batches, as it was when the frame was planned."""

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lethe_spark.je_columns import batches
from lethe_spark.je_keys import key_batches
from lethe_spark.je_parts import CLEANED, Asked, SeenFile
from spark.erase.errors import EnvironmentUnreadable, LogFileChanged, LogFileVanished
from spark.erase.reading.directory import Descriptors, identity_of
from spark.erase.reading.files import Room, read_file
from spark.erase.reading.live_reading import MovingFile
from spark.formats.je import log as je_log
from spark.worker import keep_modules


class _Buffers(threading.local):
    """Those of this thread: a worker reads one file after another."""

    def __init__(self) -> None:
        self.room = Room.make()


_buffers = _Buffers()


def read_file_of(wanted: Asked, seen: SeenFile) -> Iterator[Any]:
    """The rows of one file as record batches. Raises: LogRefused: naming file and offset."""
    keep_modules()
    descriptors = Descriptors(1)
    try:
        file = _opened(seen, descriptors)
        found = read_file(file, is_last=seen.is_last, verify=wanted.verify, room=_buffers.room)
        if wanted.view == "keys":
            yield from key_batches(file, found, str(wanted.directory))
        else:
            yield from batches(found, str(wanted.directory), wanted.columns, types=wanted.types)
    finally:
        descriptors.close()


def _opened(seen: SeenFile, descriptors: Descriptors) -> MovingFile:
    """The file as it was seen, up to the size that it had; a device has another number on each machine."""
    name = seen.path.name
    try:
        descriptor, _ = descriptors.of(seen.path)
    except EnvironmentUnreadable as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise LogFileVanished(CLEANED, file=name) from error
        raise
    now = identity_of(os.fstat(descriptor))
    if now.inode != seen.inode:
        raise LogFileChanged("another file has its name since the frame was planned", file=name)
    if now.size < seen.size or (now.size > seen.size and not seen.is_last):
        raise LogFileChanged(f"{seen.size} bytes became {now.size}", file=name)
    return MovingFile(je_log.file_number(name), seen.path, replace(now, size=seen.size), descriptors)
