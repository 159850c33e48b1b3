"""What the mode of a file allows, whoever asks: the kernel lets root do everything.

A file that its owner made read-only is not to be written to, and root stands in for the owner here.
"""

import errno
import os

ROOT = 0
_OWNER_SHIFT = 6


def permits(status: os.stat_result, wanted: int) -> bool:
    """Whether the bits of the owner allow it; others than the owner and root have asked the kernel.

    Args:
        wanted: os.R_OK, os.W_OK and os.X_OK, or-ed.
    """
    if os.geteuid() not in (ROOT, status.st_uid):
        return True
    return (status.st_mode >> _OWNER_SHIFT) & wanted == wanted


def may(path: str | os.PathLike[str], wanted: int) -> bool:
    """Whether this process may, by the kernel and by the mode."""
    try:
        return os.access(path, wanted) and permits(os.stat(path), wanted)
    except OSError:
        return False


def refuse(status: os.stat_result, wanted: int, name: str) -> None:
    """Raise what the kernel would say to anybody but root."""
    if not permits(status, wanted):
        raise PermissionError(errno.EACCES, f"its mode {status.st_mode & 0o7777:04o} does not allow it", name)


def wanted_by(flags: int) -> int:
    """What flags of open() ask for."""
    kind = flags & os.O_ACCMODE
    return {os.O_RDONLY: os.R_OK, os.O_WRONLY: os.W_OK}.get(kind, os.R_OK | os.W_OK)
