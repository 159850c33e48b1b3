"""A log that is read only, and nobody writes meanwhile: nothing is made for that, not even JE's lock file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark.erase.calls.calls import RefusalCode
from spark.erase.calls.refusing import Refused
from spark.erase.overwrite.environment_lock import NAME as LOCK_NAME
from spark.erase.overwrite.locking import environment_locked


@contextmanager
def log_at_rest(directory: Path) -> Iterator[None]:
    """Keep every JE process out until the end of the block.

    JE makes `je.lck` as soon as it opens an environment: while there is none, nobody is in.

    Raises: Refused: ENVIRONMENT_IN_USE, PERMISSION, CONTROL_FILE_INVALID.
    """
    lock_file = directory / LOCK_NAME
    if os.path.lexists(lock_file):
        with environment_locked(directory):
            yield
        return
    try:
        yield
    finally:  # whatever was found wrong may be the work of whoever came in
        if os.path.lexists(lock_file):
            detail = "somebody has opened the environment meanwhile"
            raise Refused(RefusalCode.ENVIRONMENT_IN_USE, detail, file=LOCK_NAME)
