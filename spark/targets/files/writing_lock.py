"""A lock on a data file itself, held by whoever overwrites it.

The byte in the control file orders writers and protectors. It is worth nothing in the moment in which
somebody removes or replaces that file under a writer: a new control file has no locks. This one lies on the
very file that is written, so no promise about it is given while it is held.
"""

import os
from pathlib import Path
from typing import Final

from spark.targets.files import ofd_lock
from spark.targets.files.beneath import open_beneath

# Far behind the end of every log file.
WRITER_BYTE: Final = 2**62
FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def try_lock(fd: int) -> bool:
    """Take it, until the descriptor is closed; `fd` must be open for writing.

    Raises: LockFailed.
    """
    return ofd_lock.try_exclusive(fd, WRITER_BYTE)


def is_held(path: Path) -> bool:
    """Whether somebody overwrites the file now; nobody does where it is not there, or cannot be read.

    Raises: LockFailed.
    """
    try:
        fd = open_beneath(path, FLAGS)
    except OSError:
        return False
    try:
        return not ofd_lock.is_free(fd, WRITER_BYTE, exclusive=False)
    finally:
        os.close(fd)
