"""One attempt's file: named once, never replaced, durable before its transaction commits.

Invariants:
- The name is `<unit_id>-<token>.parquet`; a unit that is repeated with the same token after a rollback takes
  `<unit_id>-<token>.2.parquet` and so on, because what an attempt wrote is never overwritten.
- Mode 0600, every directory that is created 0700.
- `finish` returns only after the file and the names on its path were fsynced.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from spark.formats.arrow import pa, pq
from spark.targets.errors import ArchiveFailed, ArchiveFull, archive_failure
from spark.targets.files.beneath import make_directory_beneath, open_beneath
from spark.targets.manifest import sync_directory

ATTEMPTS_WITH_ONE_TOKEN = 1000
UNIT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
ATTEMPT_NAME = re.compile(r"(?P<unit>.+)-(?P<token>[0-9]+)(\.[0-9]+)?\.parquet")
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def job_directory(root: Path, store_id: str, job_id: str) -> Path:
    """Where the files of a job lie: `<root>/<store_id>/<job_id>`."""
    assert is_safe_name(store_id), "a store id is a safe file name"
    assert is_safe_name(job_id), "a job id is a safe file name"
    return root / store_id / job_id


def is_safe_name(text: str) -> bool:
    """Whether a text that somebody else wrote may be part of a path."""
    return _SAFE_NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Written:
    """What a finished file turned out to be."""

    path: Path
    rows: int
    bytes: int
    sha256: str


class AttemptWriter:
    """Writes Arrow tables into a new file; one that was not finished stays torn, for nobody to trust."""

    def __init__(self, directory: Path, *, unit_id: str, token: int, schema: Any) -> None:
        assert UNIT_ID.fullmatch(unit_id), "a unit id is a safe file name"
        assert token >= 0, "tokens count from 0"
        self._rows = 0
        self._sink: _HashingFile | None = None
        self._writer: Any = None
        made: Path | None = None
        try:
            prepare_directory(directory)
            made, descriptor = _create(directory, unit_id, token)
            self.path = made
            self._sink = _HashingFile(descriptor)
            # Most values of a row come once: a dictionary of them takes a third of the time, and room.
            self._writer = pq.ParquetWriter(
                pa.PythonFile(self._sink, mode="w"),
                schema,
                compression="zstd",
                use_dictionary=False,
                write_page_checksum=True,
            )
        except (OSError, pa.ArrowException) as exc:
            self._abandon()
            raise _failed(directory, exc, part=made) from exc

    def write(self, table: Any) -> None:
        """Append the rows of a table of the file's schema."""
        try:
            self._writer.write_table(table)
        except (OSError, pa.ArrowException) as exc:
            raise _failed(self.path, exc, part=self.path) from exc
        self._rows += table.num_rows

    def finish(self) -> Written:
        """Close the file and make it durable.

        Raises: ArchiveFailed: the disk refused; the transaction must not commit.
        """
        assert self._sink is not None
        try:
            self._writer.close()
            os.fsync(self._sink.descriptor)
            self._sink.close()
            sync_directory(self.path.parent)
        except (OSError, pa.ArrowException) as exc:
            raise _failed(self.path, exc, part=self.path) from exc
        return Written(self.path, self._rows, self._sink.written, self._sink.digest.hexdigest())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._abandon()

    def _abandon(self) -> None:
        # Closing the writer would append a footer and make a torn file look whole.
        if self._sink is not None:
            self._sink.abandon()


def _failed(place: Path, error: Exception, *, part: Path | None) -> ArchiveFailed:
    """The error to raise; the part of a file goes where its bytes are the room that lacks."""
    failure = archive_failure(place, error)
    if isinstance(failure, ArchiveFull) and part is not None:
        with suppress(OSError):
            part.unlink()
    return failure


class _HashingFile(io.RawIOBase):
    """A file that knows the hash of what went through it; Parquet is written from front to back."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.digest = hashlib.sha256()
        self.written = 0
        self._abandoned = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._abandoned:
            return len(view)
        done = 0
        while done < len(view):
            done += os.write(self.descriptor, view[done:])
        self.digest.update(view)
        self.written += len(view)
        return len(view)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self.descriptor)

    def abandon(self) -> None:
        """Swallow what the writer still wants to say, and close."""
        self._abandoned = True
        self.close()


def prepare_directory(directory: Path) -> None:
    """Create a directory and its parents, private and durable."""
    directory = Path(os.path.realpath(directory))
    missing = []
    current = directory
    while not current.is_dir():
        missing.append(current)
        assert current != current.parent, "the root exists"
        current = current.parent
    for path in reversed(missing):
        make_directory_beneath(path)
        sync_directory(path.parent)


def unlinked(directory: Path) -> Path:
    """The path of a job's directory: the root may be reached by links, what lies below is none."""
    return Path(os.path.realpath(directory.parents[1]), *directory.parts[-2:])


def _create(directory: Path, unit_id: str, token: int) -> tuple[Path, int]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    for again in range(1, ATTEMPTS_WITH_ONE_TOKEN + 1):
        suffix = "" if again == 1 else f".{again}"
        path = directory / f"{unit_id}-{token}{suffix}.parquet"
        try:
            return path, open_beneath(unlinked(directory) / path.name, flags)
        except FileExistsError:
            continue
    raise ArchiveFailed(
        f"{directory}: unit {unit_id} has failed {ATTEMPTS_WITH_ONE_TOKEN} times with token {token}"
    )
