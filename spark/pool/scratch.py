"""The folder of one JVM: shuffles, handshake, our zip. It goes with the JVM, or with the next start.

Invariant: a folder whose lock is held belongs to a process that lives; no other start removes it.

Unix sockets lie in a folder of the JVM too. Linux takes only short paths for them, and Spark only folders
of up to 60 bytes: where the JVM's is longer, they lie in one below the system's folder for temporary files.
Its name says whose it is: a copy of the JVM's folder has another inode, and takes nothing of the first along.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PREFIX: Final = "jvm-"
LEFTOVERS_MAX: Final = 1_000
SOCKETS_PATH_BYTES_MAX: Final = 60
_TEMPORARY: Final = "lethe-spark-"


@dataclass(frozen=True, slots=True)
class Scratch:
    """A folder that is ours as long as `lock` is open.

    Args:
        parent: what outlives the JVM, the log above all, lies here.
        lock: descriptor of the file that holds the lock.
        own_parent: whether the parent was made for this JVM alone.
        sockets: where Unix sockets can be made; None: no folder has a short enough path.
    """

    path: Path
    parent: Path
    lock: int
    own_parent: bool
    sockets: Path | None = None

    def remove(self) -> None:
        """Remove the folder with all that the JVM left in it."""
        _remove_sockets(self.path)
        shutil.rmtree(self.parent if self.own_parent else self.path, ignore_errors=True)
        os.close(self.lock)


def make_scratch(parent: Path | None) -> Scratch:
    """Make a folder below `parent`, or below a new one; removes what dead processes left there."""
    own_parent = parent is None
    if parent is None:
        parent = Path(tempfile.mkdtemp(prefix=_TEMPORARY))
    parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(parent)
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent)).resolve()
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return Scratch(path, parent.resolve(), lock, own_parent, _make_sockets(path))


def _make_sockets(path: Path) -> Path | None:
    """A folder that is ours alone, as `path` is."""
    if _is_short(path):
        return path
    sockets = _sockets_of(path)
    if not _is_short(sockets):
        return None
    try:
        sockets.mkdir(mode=0o700)
    except OSError:  # a machine need not let us write there
        return None
    return sockets


def _sockets_of(path: Path) -> Path:
    """Where those of a JVM lie whose folder has a long path; it can be found again by the next start."""
    name = f"{_TEMPORARY}{path.stat().st_ino:x}-{path.name.removeprefix(PREFIX)}"
    return Path(tempfile.gettempdir()).resolve() / name


def _is_short(path: Path) -> bool:
    return len(os.fsencode(path)) <= SOCKETS_PATH_BYTES_MAX


def _remove_sockets(path: Path) -> None:
    with suppress(OSError):
        sockets = _sockets_of(path)
        if sockets.lstat().st_uid == os.geteuid():
            shutil.rmtree(sockets, ignore_errors=True)


def _remove_leftovers(parent: Path) -> None:
    for path in sorted(parent.glob(f"{PREFIX}*"))[:LEFTOVERS_MAX]:
        with suppress(OSError):
            lock = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_sockets(path)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
