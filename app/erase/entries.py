"""One entry of the log, for a client: the document's isEntryErased."""

from pathlib import Path

from app.erase.errors import EnvironmentRefused, LogEntryNotFound
from app.erase.models import LogEntryRead
from spark.erase.errors import LogRefused
from spark.erase.reading.entry import read_entry
from spark.formats.je.log import EntryType


def read_log_entry(directory: Path, file: str, offset: int) -> LogEntryRead:
    """Read an entry where it lies.

    Raises: LogEntryNotFound, EnvironmentRefused.
    """
    try:
        found = read_entry(directory, file, offset)
    except LogRefused as error:
        raise EnvironmentRefused(error) from error
    if found is None:
        if not (directory / file).exists():
            raise LogEntryNotFound(f"there is no {file}")
        raise LogEntryNotFound(f"no entry of {file} begins at offset {offset}")
    return LogEntryRead(
        file=file,
        offset=offset,
        type=found.type.name,
        type_number=int(found.type),
        erased=found.type is EntryType.ERASED,
        all_zero=found.all_zero,
        item_bytes=found.item_bytes,
    )
