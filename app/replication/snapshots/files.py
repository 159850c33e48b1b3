"""The file of an export: written beside its place, and there under its name when it is whole.

Rules:
- a file that is there is never written over;
- what an attempt that died has left beside it is of this job alone, and is removed by the next one;
- an attempt that ends without a whole file leaves nothing beside it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO, Final

CHUNK_BYTES: Final = 1024 * 1024


def draft_of(path: Path, job_id: str) -> Path:
    """Where an export writes before the file is whole."""
    return path.with_name(f".{path.name}.{job_id}")


def is_placed(path: Path, job_id: str) -> bool:
    """Whether an attempt of this job had placed the file and died behind that."""
    with suppress(OSError):
        return path.samefile(draft_of(path, job_id))
    return False


@contextmanager
def drafted(path: Path, job_id: str) -> Iterator[BinaryIO]:
    """A new file, readable by its owner alone; durable at the block's end.

    Raises: OSError.
    """
    draft = draft_of(path, job_id)
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
        try:
            yield file
            flush(file)
        except BaseException:
            with suppress(OSError):
                # Of another attempt of this job where it has begun anew since.
                if os.path.samestat(os.fstat(file.fileno()), os.lstat(draft)):
                    draft.unlink()
            raise


def flush(file: BinaryIO) -> None:
    """Make durable what was written.

    Raises: OSError.
    """
    file.flush()
    os.fsync(file.fileno())


def place(path: Path, job_id: str) -> None:
    """Give the file its name; the draft stays until `clear`, so that a crash in between is understood.

    Raises: FileExistsError: another file has the name. OSError.
    """
    try:
        os.link(draft_of(path, job_id), path)
    except OSError:
        if not is_placed(path, job_id):
            clear(path, job_id)
        raise
    _sync(path.parent)


def clear(path: Path, job_id: str) -> None:
    """Remove the draft."""
    with suppress(OSError):
        draft_of(path, job_id).unlink(missing_ok=True)


def measure(path: Path) -> tuple[int, str]:
    """Bytes and SHA-256 of a file.

    Raises: OSError.
    """
    held, size = sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            held.update(chunk)
            size += len(chunk)
    return size, held.hexdigest()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
